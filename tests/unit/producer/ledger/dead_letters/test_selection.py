"""Selections of dead letters, and impossible ones."""

from datetime import datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.producer.ledger.dead_letters.selection import Selection, selection_of
from docllm.schemas.errors import ConfigError

NOW = datetime(2026, 3, 1, 12, 0, 0)  # noqa: DTZ001 - the database's times are UTC without a zone


@pytest.mark.parametrize(
    ("chosen", "with_records"),
    [
        (Selection(dispositions=("rejected",)), True),
        (Selection(fingerprint="abcdef"), True),
        (Selection(since=NOW), True),
        (Selection(until=NOW), True),
        (Selection(record=1), True),
        (Selection(batch="b"), False),
        (Selection(type="t"), False),
        (Selection(tenant="t"), False),
        (Selection(key="k"), False),
        (Selection(cancelled=True), False),
    ],
)
def test_every_option_but_a_limit_narrows(chosen: Selection, *, with_records: bool) -> None:
    """Quarantined records have no batch, type, tenant or id."""
    assert chosen.narrows
    assert chosen.with_records == with_records
    assert not Selection(limit=5).narrows


def test_a_group_of_several_errors_is_no_selection() -> None:
    """No dead letter has its fingerprint, so nothing would be selected."""
    for digits in ("f" * 6, "f" * 8, "f" * 32):
        with pytest.raises(ConfigError, match="--batch, --disposition or --since"):
            Selection(fingerprint=digits)


@pytest.mark.parametrize(
    "fingerprint", ["abcde", "xyzxyz", "abcdef" * 6, "'abcde", "ABCDEF", "abc def"]
)
def test_a_fingerprint_has_six_digits_at_least(fingerprint: str) -> None:
    """A fingerprint has at least six digits; the error for another says where to find them."""
    with pytest.raises(ConfigError, match="first 6 hexadecimal digits"):
        Selection(fingerprint=fingerprint)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"dispositions": ("expired",)}, "--disposition"),
        ({"since": NOW}, "--since"),
        ({"record": 3}, "--id"),
        ({"fingerprint": "abcdef"}, "--fi"),
    ],
)
def test_cancelled_tasks_have_no_death(options: dict[str, Any], option: str) -> None:
    """Options about deaths do not fit cancelled tasks; the error names the option."""
    with pytest.raises(ConfigError, match=option):
        Selection(cancelled=True, **options)


def test_records_are_replayed_only_when_they_are_named() -> None:
    """Records are replayed only by disposition, fingerprint or number.

    `--all` or a time does not select them.
    """
    assert not Selection().names_records
    assert not Selection(since=NOW).names_records
    assert not Selection(dispositions=("permanent",)).names_records
    for chosen in (
        Selection(dispositions=("permanent", "undecodable")),
        Selection(fingerprint="abcdef"),
        Selection(record=3),
    ):
        assert chosen.names_records, chosen
    assert not Selection(dispositions=("rejected",), batch="b").names_records


def test_a_selection_without_words_has_no_empty_ones() -> None:
    """A selection stores no empty words: a fingerprint without digits is none."""
    with pytest.raises(ConfigError, match="first 6 hexadecimal digits"):
        Selection(fingerprint="")
    assert selection_of(Selection(tenant="").as_json()) == Selection(tenant="")
    assert Selection(tenant="").narrows


texts = st.none() | st.text()
SELECTIONS = st.builds(
    Selection,
    dispositions=st.lists(st.sampled_from(["permanent", "rejected"]), unique=True).map(tuple),
    fingerprint=st.none() | st.text("0123456789abcdef", min_size=6, max_size=32),
    batch=texts,
    type=texts,
    tenant=texts,
    since=st.none() | st.datetimes(),
    until=st.none() | st.datetimes(),
    key=texts,
    limit=st.none() | st.integers(1, 10**6),
)


@given(SELECTIONS)
def test_a_selection_is_stored_and_read_back(chosen: Selection) -> None:
    """A selection survives storage, whatever the names, and can be shown on one line."""
    assert selection_of(orjson.loads(orjson.dumps(chosen.as_json()))) == chosen
    assert str(chosen)


def test_a_selection_is_shown_as_its_options() -> None:
    """A selection is shown as its options, as a person would type it."""
    chosen = Selection(dispositions=("permanent", "expired"), since=NOW, key="k", limit=3)

    assert (
        str(chosen)
        == "--disposition permanent,expired --since 2026-03-01T12:00:00Z --id k --limit 3"
    )
    assert str(Selection()) == "--all"
    assert str(Selection(cancelled=True, batch="b")) == "--batch b --cancelled"
    assert str(Selection(record=4)) == "--id quarantine:4"
