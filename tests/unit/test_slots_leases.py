"""What was claimed runs only while its lease is good, however long it waited in the agent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from agent.entry import Entry
from agent.guard import Guards
from agent.lease import FRESH_S
from agent.outcome import Outcome, Released
from agent.slots import SUSPECT_PAUSE_S, SUSPECT_SLOTS, SUSPECT_WAIT_S
from tests.unit.breakers import GOOD, routes
from tests.unit.slotting import LONGEST, RAISED, Bench, claimed, ending, started


def silent(entry: Entry) -> None:
    """Let the heartbeat have been silent for as long as other agents wait."""
    assert entry.lease is not None
    entry.lease.beaten_s -= FRESH_S + 1


def test_a_task_whose_lease_ran_out_is_given_back() -> None:
    """It was claimed, and the heartbeat has been silent since."""
    bench = Bench(routes(), ending(GOOD))
    entry = claimed(1, bench.clock.now_s())
    silent(entry)

    assert started(bench, entry) == [Released()]
    assert bench.counts.attempts == 0


def test_a_suspect_whose_lease_ran_out_while_it_waited_is_given_back() -> None:
    """All suspects' slots were taken when it came; by the time one is free another agent may have the task."""
    bench = Bench(routes(), ending(GOOD))
    bench.counts.last_settled_s = bench.clock.now_s()
    since_s = bench.clock.now_s() - SUSPECT_PAUSE_S
    ahead = [claimed(number, since_s, lease_losses=2) for number in range(SUSPECT_SLOTS)]
    last = claimed(SUSPECT_SLOTS, since_s, lease_losses=2)

    async def run() -> None:
        slots = bench.slots()
        for entry in ahead:
            slots.start(entry)
        slots.tick()
        slots.start(last)
        await asyncio.sleep(0)
        silent(last)
        for _ in range(20):
            await asyncio.sleep(0)  # each that ends lets the next suspect begin; none is cancelled

    asyncio.run(run())

    assert bench.settler.outcomes == [GOOD] * SUSPECT_SLOTS + [Released()]


def test_a_suspect_that_waits_for_long_is_given_back() -> None:
    """Its deadline runs from the claim: it would begin with little time left, or be taken for a task that killed its agent."""
    bench = Bench(routes(), cast("Callable[[], Awaitable[Outcome]]", asyncio.Event().wait))
    bench.counts.last_settled_s = bench.clock.now_s()
    since_s = bench.clock.now_s() - SUSPECT_PAUSE_S
    waiting = [claimed(number, since_s, lease_losses=2) for number in range(SUSPECT_SLOTS + 1)]

    async def run() -> list[Outcome]:
        slots = bench.slots()
        for entry in waiting[:-1]:
            slots.start(entry)
        slots.tick()
        slots.start(waiting[-1])
        await asyncio.sleep(0)
        before = list(bench.settler.outcomes)
        waiting[-1].claimed_s -= SUSPECT_WAIT_S + 1
        slots.tick()
        waiting[0].claimed_s -= SUSPECT_WAIT_S + 1
        slots.tick()
        after = list(bench.settler.outcomes)
        await slots.finish(0)
        return before + after

    assert asyncio.run(run()) == [Released()]


def test_suspects_for_whom_there_is_no_room_are_given_back_before_any_begins() -> None:
    """One of those that begin may kill the agent at once, and whatever is claimed then is lost with it, for the third time."""
    bench = Bench(routes(), ending(GOOD))
    bench.counts.last_settled_s = bench.clock.now_s()
    entries = [claimed(number, bench.clock.now_s(), lease_losses=2) for number in range(3 * SUSPECT_SLOTS)]

    async def run() -> tuple[list[Outcome], int, int]:
        slots = bench.slots()
        for entry in entries:
            slots.start(entry)
        slots.tick()
        before = list(bench.settler.outcomes)
        early = slots.running
        for entry in entries:
            entry.claimed_s -= SUSPECT_PAUSE_S
        slots.tick()
        late = slots.running
        await slots.finish(5.0)
        return before, early, late

    assert asyncio.run(run()) == ([Released()] * (2 * SUSPECT_SLOTS), 0, SUSPECT_SLOTS)


def test_a_task_whose_lease_ran_out_while_its_guard_was_asked_is_given_back() -> None:
    """The ledger took its time to say that it may be the guard's probe."""
    bench = Bench(routes(), ending(GOOD))
    entry = claimed(1, bench.clock.now_s())

    async def take_turn(_guard_id: int, _task_id: int) -> bool:
        silent(entry)
        return True

    bench.guards = Guards(clock=bench.clock, longest_tier=LONGEST, take_turn=take_turn)
    bench.guards.replace([replace(RAISED, probe_in_s=-1.0)])

    assert started(bench, entry) == [Released()]
