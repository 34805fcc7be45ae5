"""What the judge is told about a simulated program."""

from types import SimpleNamespace
from typing import cast

from tests.simulation.programs import AgentProgram


def test_a_heartbeat_that_has_not_begun_stands_still_with_its_main_loop() -> None:
    """Until an agent's heartbeat begins, the stops of its main loop are the heartbeat's too."""
    agent = SimpleNamespace(
        main=SimpleNamespace(stops=[[1.0, 4.0], [7.0, 9.0]]),
        beat=SimpleNamespace(stops=[[8.0, 9.0]]),
        _beats_from_s=5.0,
    )

    stops = AgentProgram.beat_stops.__get__(cast("AgentProgram", agent))

    assert stops == [[1.0, 4.0], [8.0, 9.0]]
