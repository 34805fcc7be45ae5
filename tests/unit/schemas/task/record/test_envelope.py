"""A task's headers can be read back, and nothing in them is trusted."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.task.record.envelope import (
    NotOursError,
    Publication,
    decode,
    digest,
    encode,
    text,
)

OURS = Publication(
    ledger="ab" * 16,
    group="group",
    batch="batch",
    task_id=7,
    fence=3,
    counted_before=2,
    due_ms=1_700_000_000_000,
    origin="group.tasks/3/17",
    error_class="SERVER",
    error="it answered 503",
)


def headers(**changes: bytes | None) -> list[tuple[str, bytes]]:
    """Return good headers with some changed, or left out if the value is None."""
    headers = dict(encode(OURS)) | {
        name.replace("_", "-"): value for name, value in changes.items()
    }
    return [(name, value) for name, value in headers.items() if value is not None]


def test_written_headers_are_read_back() -> None:
    """The claim and the screen can read all they need of a publication."""
    publication = decode(encode(OURS))

    assert (
        publication.ledger,
        publication.group,
        publication.batch,
        publication.task_id,
        publication.fence,
    ) == (
        OURS.ledger,
        "group",
        "batch",
        7,
        3,
    )
    assert (publication.counted_before, publication.due_ms, publication.origin) == (
        2,
        1_700_000_000_000,
        "group.tasks/3/17",
    )


@pytest.mark.parametrize("name", ["q  1", "q 1", "n\u00e4cht", "x" * 191])
def test_a_batch_travels_unchanged(name: str) -> None:
    """A batch's name travels unchanged: two blanks reduced to one would name another batch."""
    assert decode(encode(replace(OURS, batch=name))).batch == name


def test_headers_are_text_and_never_empty() -> None:
    """Headers are text that other languages can read, and empty ones are left out."""
    assert {name: value.decode() for name, value in encode(OURS)}["docllm-task"] == "7"
    assert {
        name
        for name, _ in encode(Publication(ledger="l", group="g", batch="b", task_id=1, fence=0))
    } == {
        "docllm-v",
        "docllm-ledger",
        "docllm-group",
        "docllm-batch",
        "docllm-task",
        "docllm-fence",
        "docllm-attempt",
        "docllm-due-ms",
    }


@pytest.mark.parametrize(
    "name", ["docllm-v", "docllm-ledger", "docllm-group", "docllm-task", "docllm-fence"]
)
def test_a_header_that_every_publication_has_is_required(name: str) -> None:
    """Each header of a publication is required; the error names a missing or doubled one."""
    without = [(header, value) for header, value in headers() if header != name]
    for bad in (without, [*headers(), (name, b"1")]):
        with pytest.raises(NotOursError, match=name):
            decode(bad)


@pytest.mark.parametrize(
    "value", [b"L\x1b[31m", b"g\r\nINFO forged", b"g\x7f", b"\xc2\x9b", b"x" * 101]
)
@pytest.mark.parametrize("name", ["docllm_ledger", "docllm_group"])
def test_a_word_holds_no_control_character(name: str, value: bytes) -> None:
    """A word has no control characters, because the log shows to whom a record belongs."""
    with pytest.raises(NotOursError, match="too long, not ASCII, or holds control characters"):
        decode(headers(**{name: value}))


@pytest.mark.parametrize(
    "value",
    [b"", b"-1", b"1.0", b"1e3", b" 1", b"0x1", b"1" * 19, "\u0661".encode(), b"\xff", b"1\n"],
)
@pytest.mark.parametrize("name", ["docllm_task", "docllm_fence", "docllm_attempt", "docllm_due_ms"])
def test_a_number_is_digits_within_bounds(name: str, value: bytes) -> None:
    """A number is 1 to 18 digits, which fit every column."""
    with pytest.raises(NotOursError):
        decode(headers(**{name: value}))


@pytest.mark.parametrize("value", [b"x" * 33, "ü".encode()])
def test_a_ledgers_id_is_short_and_ascii(value: bytes) -> None:
    """A foreign header cannot be longer than the id it is compared with."""
    with pytest.raises(NotOursError, match="docllm-ledger"):
        decode(headers(docllm_ledger=value))


def test_another_version_is_not_ours() -> None:
    """The error says which version was found and which is read."""
    with pytest.raises(NotOursError, match="b'2', this version reads 1"):
        decode(headers(docllm_v=b"2"))


@pytest.mark.parametrize("bad", [None, [], [("docllm-v", None)], [("other", b"1")]])
def test_no_headers_are_not_ours(bad: list[tuple[str, bytes | None]] | None) -> None:
    """A record without headers is foreign."""
    with pytest.raises(NotOursError, match="docllm-v"):
        decode(bad)


def test_headers_of_others_are_left_alone() -> None:
    """Headers of other programs, such as tracing, may occur any number of times."""
    assert decode([("traceparent", b"\xff"), *headers(), ("traceparent", None)]).task_id == 7


def test_key_and_value_cannot_change_places_in_a_digest() -> None:
    """The digest covers where the key ends, so key and value cannot change places."""
    assert len(digest(b"a", b"b")) == 16
    assert (
        len({digest(b"ab", b""), digest(b"a", b"b"), digest(b"", b"ab"), digest(b"b", b"a")}) == 4
    )


@given(st.text(), st.integers(1, 50))
def test_header_text_is_one_line_of_whole_characters(value: str, limit: int) -> None:
    """Whatever an error says, the header is UTF-8, one line, and no longer than its limit."""
    shortened = text(value, limit)

    assert len(shortened) <= limit
    assert len(shortened.decode().splitlines()) <= 1


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    """Half a surrogate pair becomes a question mark, so a text from broken JSON can be a header."""
    assert text("a \ud800 b", 100) == b"a ? b"


@pytest.mark.parametrize("size", [0, 1, 2025, 2026, 2027, 4072, 4073, 65_500, 65_600, 200_000])
def test_a_digest_is_that_of_the_whole_whatever_the_parts(size: int) -> None:
    """A small task is hashed in parts that keep the interpreter's lock."""
    key, value = b"document-00000001", bytes(number % 251 for number in range(size))
    whole = len(key).to_bytes(4, "big") + key + value

    assert digest(key, value) == hashlib.blake2b(whole, digest_size=16).digest()
