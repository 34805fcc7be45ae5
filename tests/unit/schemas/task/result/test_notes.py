"""What is noted beside a result stays small and safe to show, whatever a document names."""

import json

from docllm.schemas.task.result.notes import MAX_CHARS, MAX_TEXTS, detail


def test_the_texts_of_a_note_are_json_in_their_order() -> None:
    assert json.loads(detail(["page 3", "altChunk 1", "page 3"])) == ["page 3", "altChunk 1"]


def test_a_note_without_texts_is_true() -> None:
    assert json.loads(detail([])) is True


def test_fifty_texts_are_kept_and_the_others_are_counted() -> None:
    kept = json.loads(detail(f"page {number}" for number in range(MAX_TEXTS + 7)))

    assert kept[-2:] == [f"page {MAX_TEXTS - 2}", "and 8 more"]
    assert len(kept) == MAX_TEXTS
    assert json.loads(detail(kept)) == kept
    assert json.loads(detail(f"page {number}" for number in range(MAX_TEXTS)))[-1] == "page 49"


def test_a_long_or_unprintable_text_becomes_a_short_line() -> None:
    (long,) = json.loads(detail(["x" * 1_000]))
    (odd,) = json.loads(detail(["altChunk\n\x1b[2J\ud800"]))

    assert len(long) == MAX_CHARS
    assert odd == "altChunk [2J\ufffd"
