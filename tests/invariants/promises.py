"""The promises P1 to P9: each function returns the violations of a run as lines.

docs/explanation/promises.md states them. An empty list means that the promise held. A function
judges by what the run recorded, and says nothing about what it did not record.
"""

from collections.abc import Callable, Sequence

from tests.invariants import (
    calls,
    claims,
    ends,
    failures,
    letters,
    locks,
    offsets,
    outputs,
    quotas,
    steps,
    turns,
)
from tests.invariants.evidence import Evidence

SHOWN_VIOLATIONS = 5  # violations of one kind that are worth reading

Promise = Callable[[Evidence], list[str]]


def p1_every_task_ends_once(run: Evidence) -> list[str]:
    """P1: an accepted task is never lost: it ends once, and nothing is left to do for it.

    No task waits for ever while others go first: lanes and tenants take turns. A task that a replay
    has changed runs as it is then.
    """
    return _said(
        "P1",
        run,
        ends.lost_or_invented,
        ends.made_without_parent,
        ends.not_final,
        outputs.pointing_nowhere,
        outputs.overwritten,
        ends.orders_left,
        ends.changes_ignored,
        ends.final_left,
        ends.fences_fallen,
        ends.miscounted,
        ends.misread,
        ends.below_zero,
        ends.hooks_lost,
        ends.told_too_early,
        ends.lines_lost,
        turns.lane_starved,
        turns.tenant_starved,
    )


def p2_one_settle_per_claim(run: Evidence) -> list[str]:
    """P2: a claim has one accepted end, written under its owner.

    A reset writes a lost attempt once, and a late settle takes it back.
    A task has a result if and only if it succeeded.
    """
    checks = (claims.ended_twice, claims.ended_by_others, claims.taken_over, steps.not_a_step)
    of_rows = (ends.results_not_fitting, ends.owned_at_the_end, claims.lost_otherwise)
    return _said("P2", run, *of_rows, *checks)


def p3_no_offset_passes_open_work(run: Evidence) -> list[str]:
    """P3: an offset never passes work that is neither final nor carried by the ledger."""
    return _said("P3", run, offsets.passed_open_work, offsets.not_at_the_end)


def p4_no_answer_is_bought_twice(run: Evidence) -> list[str]:
    """P4: each claim has one call and no call lacks a claim.

    No answer is thrown away, every repeated call has a cause that counts, and no task is called on
    a route that it does not allow, or after its batch was archived. What must not run twice does
    not begin again after it was cut off.
    """
    checks = (
        calls.out_of_bounds,
        calls.given_back,
        calls.bought_again,
        calls.paid_without_limit,
        calls.not_fitting_the_ends,
        calls.repeated,
        calls.begun_twice,
        calls.late_not_done,
    )
    return _said("P4", run, calls.without_claim, calls.more_than_claims, *checks)


def p5_outages_cost_nothing(run: Evidence) -> list[str]:
    """P5: an outage of the provider, the quota or the money consumes no attempt.

    No task dies of it, and calls stay within the limits that are set.
    """
    checks = (
        quotas.above_the_rate,
        quotas.more_tokens,
        quotas.more_at_once,
        quotas.above_the_day,
        quotas.uses_above_their_limits,
        turns.tenant_above_its_cap,
        turns.type_above_its_slots,
        failures.free_counted,
        failures.miscounted,
        failures.outages_counted,
        failures.calls_into_outages,
    )
    return _said("P5", run, *checks, failures.deaths_not_held_back)


def p6_nothing_runs_early(run: Evidence) -> list[str]:
    """P6: a task is not claimed before it is due, by the database's clock.

    A retry is not due before its tier's delay is over, nor a new task before its `not_before`. A
    join is not claimed before its siblings have ended.
    """
    return _said(
        "P6",
        run,
        claims.early,
        claims.before_its_time,
        claims.before_its_siblings,
        calls.retried_early,
    )


def p7_live_leases_are_kept(run: Evidence) -> list[str]:
    """P7: no live lease loses a task before its claim is overdue; dead leases are resolved."""
    checks = (claims.reaped_alive, claims.judged_alive, claims.leaked, calls.overlapping)
    return _said("P7", run, *checks, locks.used_by_two)


def p8_dead_letters_keep_everything(run: Evidence) -> list[str]:
    """P8: each death has its dead letter with the original bytes.

    Replaying twice equals replaying once.
    """
    return _said(
        "P8",
        run,
        letters.not_fitting,
        letters.other_bytes,
        letters.unfounded,
        letters.replayed_twice,
        letters.written_twice,
    )


def p9_bad_input_stops_nothing(run: Evidence) -> list[str]:
    """P9: an unreadable record is quarantined, with a dead letter; no program ends of it.

    The end of a handler's process costs its own task alone.
    """
    checks = (letters.quarantine_not_fitting, failures.programs_ended, failures.neighbours_blamed)
    return _said("P9", run, *checks)


PROMISES: dict[str, Promise] = {
    "P1": p1_every_task_ends_once,
    "P2": p2_one_settle_per_claim,
    "P3": p3_no_offset_passes_open_work,
    "P4": p4_no_answer_is_bought_twice,
    "P5": p5_outages_cost_nothing,
    "P6": p6_nothing_runs_early,
    "P7": p7_live_leases_are_kept,
    "P8": p8_dead_letters_keep_everything,
    "P9": p9_bad_input_stops_nothing,
}


def violations(run: Evidence) -> list[str]:
    """Return the violations of a run that has ended, whatever happened in it."""
    return [line for promise in PROMISES.values() for line in promise(run)]


def few(kind: str, lines: Sequence[str]) -> list[str]:
    """Return the first of these lines, each with its kind, and how many more there are."""
    more = (
        [f"{kind}: and {len(lines) - SHOWN_VIOLATIONS} more"]
        if len(lines) > SHOWN_VIOLATIONS
        else []
    )
    return [f"{kind}: {line}" for line in lines[:SHOWN_VIOLATIONS]] + more


def _said(name: str, run: Evidence, *checks: Promise) -> list[str]:
    return [
        f"{name} {line}"
        for check in checks
        for line in few(check.__name__.replace("_", " "), check(run))
    ]
