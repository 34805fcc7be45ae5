"""The names that the ledger stores and people read: another name would break stored rows."""

import json
import re
from enum import StrEnum
from pathlib import Path

import orjson
import pytest

from docllm.producer.ledger.status.agent_status import AgentState
from docllm.schemas.ledger.bulk import _literal
from docllm.schemas.task.failures import (
    UNTRIED,
    AttemptOutcome,
    Disposition,
    ErrorClass,
    TallyOutcome,
)
from docllm.schemas.task.guard import GuardCause
from docllm.schemas.task.route_state import RouteState

PAGE = Path(__file__).resolve().parents[4] / "docs/reference/failures.md"
STORED: dict[type[StrEnum], str] = {
    ErrorClass: (
        "RATE RAMP CAPACITY MONEY AUTH SERVER NETWORK AMBIGUOUS BAD_OUTPUT HANDLER "
        "DOCUMENT_UNREADABLE HANDLER_GAVE_UP TOO_LONG INPUT_CUT FILTERED BAD_REQUEST "
        "REPLY_TOO_LARGE DOCUMENT_REFUSED DOCUMENT_CHANGED OUTPUT_UNWRITABLE OUTPUT_REFUSED "
        "NO_INPUT NO_PROMPT EXPIRED CHILD_DEAD SETTLE INTERNAL RELEASED CANCELLED GUARD ROUTE "
        "UNKNOWN_TYPE HOOK SCHEDULE COME_BACK AGENT_LOST WORKER_LOST FOLLOW_CLASH UNDECODABLE "
        "REJECTED UNREADABLE"
    ),
    Disposition: "permanent exhausted expired worker_lost rejected undecodable",
    AttemptOutcome: "retry snooze moved dead cancelled released hook lost",
    TallyOutcome: "loaded replayed succeeded cancelled probe hook call note",
    GuardCause: "no_success exhausted handler bad_request worker_lost",
    RouteState: "open stopped parked",
    AgentState: "alive silent lost stopped",
}


@pytest.mark.parametrize("names", STORED)
def test_stored_names_stay(names: type[StrEnum]) -> None:
    """Rows of earlier versions hold these names."""
    assert [member.value for member in names] == STORED[names].split()


@pytest.mark.parametrize("member", [next(iter(names)) for names in STORED])
def test_a_member_is_written_as_its_name(member: StrEnum) -> None:
    """Texts, both JSON libraries and the bulk insert write a member as its plain name."""
    name = member.value
    assert (type(name), f"{member}", member) == (str, name, name)
    assert orjson.dumps(member) == json.dumps(member).encode() == f'"{name}"'.encode()
    assert _literal(member) == f"_utf8mb4 X'{name.encode().hex()}'"


def test_no_class_without_an_attempt_is_counted_as_one() -> None:
    """The page of failures says of each class whether an attempt began."""
    untried = re.findall(r"^\| `([A-Z_]+)` \|.*\| no attempt", PAGE.read_text(), re.MULTILINE)
    assert untried
    assert set(untried) <= UNTRIED
