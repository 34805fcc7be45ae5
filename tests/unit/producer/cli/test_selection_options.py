"""Options become a selection of dead letters."""

from docllm.producer.cli import selection_options
from docllm.producer.cli.options.dead import add_selection
from docllm.producer.cli.options.strict_parser import Parser
from docllm.producer.ledger.dead_letters.selection import Selection
from tests.unit.producer.ledger.dead_letters.test_selection import NOW


def parsed(*words: str) -> Selection:
    parser = Parser()
    add_selection(parser)
    return selection_options.selection(parser.parse_args(words), NOW)


def test_a_fingerprint_means_all_that_begin_so() -> None:
    """A prefix selects all fingerprints that begin with it, even an odd number of digits."""
    assert Selection(fingerprint="abcdef1").fingerprint_range == (
        b"\xab\xcd\xef\x10" + bytes(12),
        b"\xab\xcd\xef\x1f" + b"\xff" * 12,
    )
    assert parsed("--fingerprint", "ABCDEF").fingerprint == "abcdef"


def test_a_record_is_named_by_its_number() -> None:
    """`quarantine:N` is a record; with a batch named, it is a task's id."""
    assert parsed("--id", "quarantine:12").record == 12
    assert parsed("--batch", "b", "--id", "quarantine:12").key == "quarantine:12"
    for name in (
        "quarantine:",
        "quarantine:x",
        "quarantine:-1",
        "quarantine:1 ",
        "Quarantine:1",
        "quarantine:" + "9" * 30,
        "quarantine:\u0661",
    ):
        assert (parsed("--id", name).record, parsed("--id", name).key) == (None, name)


def test_options_become_a_selection() -> None:
    """Every option has its field; times are by the database's clock."""
    dispositions = "--disposition permanent --disposition expired --disposition permanent"
    times = "--since 2h --until 2026-03-01"

    chosen = parsed(
        *f"{dispositions} --type t --tenant x {times} --limit 7".split(), "--batch", "a b"
    )

    assert chosen == Selection(
        dispositions=("permanent", "expired"),
        batch="a b",
        type="t",
        tenant="x",
        since=NOW.replace(hour=10),
        until=NOW.replace(hour=0),
        limit=7,
    )
