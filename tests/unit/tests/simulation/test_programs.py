"""What the judge is told about a simulated program."""

import asyncio
import random
from types import SimpleNamespace
from typing import cast

from docllm.agent.membership.heartbeat import Heartbeat
from tests.simulation.eventloop import Process, VirtualClock, VirtualLoop
from tests.simulation.machine import Machine
from tests.simulation.programs import AgentProgram, _Membership
from tests.support.doubles import double_of


def test_a_heartbeat_that_has_not_begun_stands_still_with_its_main_loop() -> None:
    """Until an agent's heartbeat begins, the stops of its main loop are the heartbeat's too."""
    agent = SimpleNamespace(
        main=SimpleNamespace(stops=[[1.0, 4.0], [7.0, 9.0]]),
        beat=SimpleNamespace(stops=[[8.0, 9.0]]),
        _beats_from_s=5.0,
    )

    stops = AgentProgram.beat_stops.__get__(cast("AgentProgram", agent))

    assert stops == [[1.0, 4.0], [8.0, 9.0]]


def test_a_stalled_main_loop_does_not_keep_an_agent_from_recording_its_stop() -> None:
    """The heartbeat's thread records the stop of an agent that leaves."""
    loop = VirtualLoop(random.Random(1))  # noqa: S311 - protects nothing
    clock, main, beat, stopped = VirtualClock(loop), Process("main"), Process("beat"), list[float]()

    async def stop() -> None:
        await clock.sleep(3.0)  # a slow database
        stopped.append(clock.now_s())

    async def leave() -> None:
        beating = loop.spawn(beat, asyncio.sleep(60.0))
        membership = _Membership(
            machine=double_of(Machine, loop=loop),
            process=beat,
            heartbeat=double_of(Heartbeat, stop=stop),
            beating=beating,
        )
        loop.spawn(main, membership.leave())
        await clock.sleep(1.0)
        loop.freeze(main)
        await clock.sleep(9.0)

    began_s = clock.now_s()
    try:
        loop.run_until_complete(loop.spawn(Process("world"), leave()))
    finally:
        loop.bury()

    assert [at_s - began_s for at_s in stopped] == [3.0]
