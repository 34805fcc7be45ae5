"""A run counts its own work only, and says at the end what became of it."""

from dataclasses import replace

from docllm.agent.reporting.group_run import GroupRun
from docllm.producer.ledger.status.progress import Totals

BEFORE = Totals(
    open=10,
    succeeded=1000,
    dead=7,
    retried=5,
    cost_micro=9_000_000,
    dead_by_class={"SERVER": 7},
    tokens_by_model={"large": 50},
)
NOW = Totals(
    open=4,
    succeeded=1015,
    dead=9,
    cancelled=1,
    retried=6,
    cost_micro=9_500_000,
    dead_by_class={"SERVER": 8, "TOO_LONG": 1},
    tokens_by_model={"large": 80},
)


def run_of(*priced: str, now: Totals = NOW) -> GroupRun:
    """Return a run that has been going on for ten seconds."""
    run = GroupRun(priced=priced)
    run.see(BEFORE, 100.0)
    run.see(now, 110.0)
    return run


def test_a_run_has_what_was_unfinished_and_what_is_loaded_meanwhile() -> None:
    """Ten tasks were open and twelve are loaded; what was done before is not its work."""
    run = run_of("large")

    assert run.shares == (18, 22)
    assert run.line() == "18 of 22 tasks done, 1.8 per s, 0:00:02 left, 2 dead, cost 0.5000"
    assert run.facts() == "18 of 22  1.8 per s  0:00:02 left  2 dead  cost 0.5000"
    assert run.dead_by_class == {"SERVER": 1, "TOO_LONG": 1}


def test_a_retry_that_waits_is_part_of_the_time_left() -> None:
    """One task waits for an hour: no rate of the others says when all is done."""
    waits = "1 waits for its third try at 23:40 UTC, the last at 01:00 UTC"
    one = replace(NOW, open=1, later=1, retries=waits, later_left_s=3600.0)
    more = replace(one, open=4)
    short = replace(more, later_left_s=1.0)

    assert run_of("large", now=one).line() == (
        f"18 of 19 tasks done, 1.8 per s, 1:00:00 left, 2 dead, cost 0.5000; {waits}"
    )
    assert run_of("large", now=more).facts().endswith(f"1:00:00 left  2 dead  cost 0.5000  {waits}")
    assert "0:00:01 left" in run_of(now=short).line()


def test_time_that_passes_moves_nothing() -> None:
    """While a retry comes nearer, the run stands still, and says why after a while."""
    run = run_of(now=replace(NOW, later=1, later_left_s=30.0))

    run.see(replace(NOW, later=1, later_left_s=20.0), 120.0)

    assert run.changed_at_s == 110.0


def test_a_replayed_task_is_more_work() -> None:
    """A replay of a dead task makes the work longer, and never the done part shorter."""
    replayed = Totals(open=11, succeeded=1000, dead=7)

    assert run_of(now=replayed).shares == (0, 11)


def test_a_summary_has_words_that_a_newcomer_knows() -> None:
    """The end says what succeeded, what was tried again, what is dead, and the cost."""
    assert run_of("large").summary(190.0) == (
        "ended with 4 of 22 tasks not done, which any agent goes on with; done in 0:01:30: "
        "15 succeeded, 2 dead, 1 cancelled, 1 failed attempt tried again; cost 0.5000"
    )
    done = Totals(open=0, succeeded=1001)
    assert run_of(now=done).summary(101.0) == "done: 1 task in 0:00:01: 1 succeeded"


def test_a_model_without_a_price_is_named() -> None:
    """A cost of 0 would look as if the work cost nothing."""
    both = Totals(cost_micro=9_000_001, tokens_by_model={"large": 51, "tiny": 1})

    assert run_of().cost() == "no price set for model large"
    assert run_of("large", now=both).cost() == "cost 0.000001, no price set for model tiny"
    assert GroupRun(priced=()).cost() == ""


def test_a_price_that_is_set_while_agents_run_is_a_price() -> None:
    """The settings of the start lack it, but the calls cost something."""
    first = Totals(tokens_by_model={"large": 10, "tiny": 5}, cost_by_model={"tiny": 7})
    now = Totals(
        cost_micro=500_007,
        tokens_by_model={"large": 20, "tiny": 9},
        cost_by_model={"tiny": 7, "large": 500_000},
    )
    run = GroupRun(priced=())
    run.see(first, 100.0)
    run.see(now, 110.0)

    assert run.cost() == "cost 0.5000, no price set for model tiny"


def test_a_run_knows_when_something_moved() -> None:
    """Any change of the counts is a movement."""
    run = run_of()
    assert (run.begun, run.changed_at_s) == (True, 110.0)

    run.see(NOW, 150.0)

    assert run.changed_at_s == 110.0
