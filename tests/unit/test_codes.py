"""Codes: each has a section in the runbook, and each message that asks for an act has a code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docllm.producer.text.urgency import Urgency
from docllm.schemas import errors
from docllm.schemas.codes import Code
from tests.support.syntax import sources

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs/how-to/runbook.md").read_text("utf-8")
ASKING = {"warning", "error", "critical", "exception", "log"}

MENDS = "docllm mends it by itself"
TELLS = "the line only tells; it follows one that has a code, or what a person has ordered"
# Messages of warnings that ask for no act, each with its reason.
NO_CODE = {
    "%d losses are undone: their tasks only ran beside a task that killed its agent": TELLS,
    "%s of lost agents or with overdue claims may run again, %d died of their losses: %s": TELLS,
    "%s without a record on the topic: published again": MENDS,
    "%s not committed: %s": MENDS,
    "%s of agents that are gone can run again": MENDS,
    "%s; docllm continues by itself": MENDS,
    "%s[%d]: no watermark: %s": MENDS,
    "a client that is not used any more did not close: %r": MENDS,
    "a document %s; earlier ones were converted by the same process, so it is converted again by "
    "a new one": MENDS,
    "a publish of %d records lost its event loop": MENDS,
    "an answer of route %s was taken although it is odd (%s); further ones are counted in "
    "docllm_odd_answers_total": TELLS,
    "no offsets to begin from: %s": MENDS,
    "no watermarks: %s": MENDS,
    "not paused or resumed: %s": MENDS,
    "partitions not assigned: %s": MENDS,
    "partitions not begun anew: %s": MENDS,
    "publish orders were not sent and are left to the relay: %s": MENDS,
    "rehearsal LLM: the answers are extracts of the documents, no model is called": TELLS,
    "the client is kept: %s": MENDS,
    "the event loop runs again; it was blocked %s": TELLS,
    "waiting for %s, which another program holds while it starts": MENDS,
}
# Files whose messages are made elsewhere: the message is what a variable says.
PASSED_ON = {
    "producer/bus/kafka/publisher.py": MENDS,
    "agent/handlers/task_log.py": "a handler's own",
    "producer/text/printable.py": "what Python or a library says",
}


class Warned(NamedTuple):
    """A call that logs a warning or worse."""

    file: str
    message: str
    has_code: bool


def warnings() -> Iterator[Warned]:
    """Yield each call that may log a warning or worse."""
    for path, source in sources().items():
        for node in source.nodes:
            if isinstance(node, ast.Call) and _asks(node):
                place = 1 if node.func.attr == "log" else 0  # type: ignore[attr-defined]
                text = node.args[place] if len(node.args) > place else None
                message = str(text.value) if isinstance(text, ast.Constant) else ""
                yield Warned(path, message, _has_code(node))


def _asks(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in ASKING:
        return False
    owner = ast.unparse(function.value)
    return owner in {"log", "logger", "self._log", "self.logger", "logging"}


def _has_code(call: ast.Call) -> bool:
    extras = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
    return any(
        isinstance(key, ast.Constant) and key.value == "code"
        for extra in extras
        if isinstance(extra, ast.Dict)
        for key in extra.keys
    )


def anchors() -> list[str]:
    """Return the headings of the runbook, in their order."""
    return re.findall(r"^## (.*)$", RUNBOOK, re.MULTILINE)


def test_each_warning_has_a_code_or_a_reason() -> None:
    """A person who reads a warning finds what to do, or need not do anything."""
    without = [warned for warned in warnings() if not warned.has_code]
    assert [
        warned
        for warned in without
        if warned.message not in NO_CODE and warned.file not in PASSED_ON
    ] == []
    assert {warned.message for warned in without} >= NO_CODE.keys()
    assert {warned.file for warned in without} >= PASSED_ON.keys()


def test_each_code_has_its_section() -> None:
    """The anchors of the runbook are the codes, each once."""
    assert sorted(anchors()) == sorted(Code)


def test_each_code_is_told_somewhere() -> None:
    """A code that nothing tells is one of the past."""
    told = "".join(
        source.text for path, source in sources().items() if not path.endswith("/codes.py")
    )
    rules = (ROOT / "deploy/prometheus/docllm.rules.yml").read_text("utf-8")
    in_status = {kind.code for kind in Urgency}
    assert [
        code
        for code in Code
        if f"Code.{code.name}" not in told
        and f"code: {code}\n" not in rules
        and code not in in_status
    ] == []


def test_each_kind_of_reason_has_a_code() -> None:
    """What `status` names has a section too; only what another version says has none."""
    assert [kind for kind in Urgency if kind.code not in set(Code)] == [Urgency.OTHER]


def test_each_error_has_a_code() -> None:
    """Exit code and code belong together."""
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.DocllmError)
    ]
    assert len({kind.code for kind in kinds}) == len(kinds)


def test_each_section_says_where_to_look_what_to_do_and_when_it_ends() -> None:
    """A person who is woken finds the three in the same place of every section."""
    sections = re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]
    lists = [re.findall(r"^- (\w+): ", section, re.MULTILINE) for section in sections]
    assert {tuple(names) for names in lists} == {("Look", "Do", "Ends")}
