"""A type that nobody knows is refused, with its nearest name and the way to let it through."""

from functools import partial

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.refusals.known_types import KnownTypes
from docllm.producer.input.refusals.line_checks import checked
from docllm.schemas.settings.claim_time import limit_of
from docllm.schemas.settings.config import Config, TypeConfig

CONFIGURED = Config(types={"invoice": TypeConfig()}).known_types


def line(number: int, **fields: object) -> ValidLine | InvalidLine:
    return read_line(number, orjson.dumps({"id": f"t{number}", "prompt": "x"} | fields))


def refused(types: KnownTypes, *lines: ValidLine | InvalidLine) -> list[InvalidLine]:
    results = checked(lines, [types.check])
    return [result for result in results if isinstance(result, InvalidLine)]


def test_a_misspelt_type_is_refused_with_its_line_and_the_nearest_one() -> None:
    """The error names line, field, the nearest type, the setting and the option; text is kept."""
    bad_line = line(7, type="invocie")

    (bad,) = refused(KnownTypes(configured=CONFIGURED), line(6, type="invoice"), bad_line)

    assert isinstance(bad_line, ValidLine)
    assert (bad.line, bad.field, bad.text) == (7, "type", bad_line.value.decode())
    assert str(bad) == (
        "line 7: type 'invocie' is unknown; did you mean invoice? "
        "a type of your own needs [types.invocie] in the settings; "
        "if only the agents have it, load with --allow-type invocie"
    )


def test_a_type_like_no_other_is_refused_with_those_that_are_known() -> None:
    """Without a similar name, the error lists the known ones, and not too many."""
    types = KnownTypes(configured=[*CONFIGURED, *(f"kind-{number}" for number in range(20))])

    (bad,) = refused(types, line(1, type="XYZ"))

    assert "known are: document, invoice, kind-0," in bad.fix
    assert ", ...; a type of your own" in bad.fix
    assert "kind-9" not in bad.fix


def test_built_in_configured_reported_and_allowed_types_pass() -> None:
    """A type is known by the settings, by an agent's report, or because a person says so."""
    types = KnownTypes(configured=CONFIGURED, reported=["seen"], allowed=["mine", "map-reduce"])
    names = ["document", "openai", "invoice", "seen", "mine", "map-reduce"]

    assert refused(types, *(line(1, type=name) for name in names), line(2)) == []


@pytest.mark.parametrize("name", ["Document", "documents", "openAI"])
def test_a_type_is_compared_letter_by_letter(name: str) -> None:
    """Another spelling of a built-in type is another type."""
    (bad,) = refused(KnownTypes(configured=CONFIGURED), line(1, type=name))

    assert f"{name!r} is unknown; did you mean " in f"{bad.error}; {bad.fix}"


@pytest.mark.parametrize(
    ("kind", "asked_s", "most"),
    [
        ("short", 61, 60),
        ("invoice", 640, 635),
        ("document", 636, 635),
        ("openai", 636, 635),
    ],
)
def test_a_line_may_not_ask_for_more_time_than_its_type_allows(
    kind: str, asked_s: int, most: int
) -> None:
    """The bound is the type's limit, or the usual one of handlers."""
    config = Config(types={"invoice": TypeConfig(), "short": TypeConfig(time_limit_s=60)})
    types = KnownTypes(
        configured=config.known_types, allowed=["mine"], limit_of=partial(limit_of, config)
    )

    def asks(number: int, kind: str, asked_s: float) -> ValidLine | InvalidLine:
        if kind == "openai":
            chat = {"custom_id": "a", "body": {"messages": [{"role": "user", "content": "x"}]}}
            return read_line(number, orjson.dumps(chat | {"time_limit_s": asked_s}))
        return line(number, type=kind, time_limit_s=asked_s)

    fits = [asks(1, kind, most), asks(2, "mine", 86_400)]
    (bad,) = refused(types, *fits, asks(3, kind, asked_s))

    assert (bad.line, bad.field) == (3, "time_limit_s")
    assert bad.error == f"is {asked_s}, and an attempt of type {kind} has {most} s at most"
    assert bad.fix == f"write a smaller number, or a larger time_limit_s into [types.{kind}]"
