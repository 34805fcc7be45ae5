"""The first request starts a drain, the second one hurries it."""

from agent.process.stop_request import StopRequest


def test_the_time_to_leave_begins_with_the_first_signal() -> None:
    """The time to leave begins with the first signal; later ones do not extend it."""
    messages: list[str] = []
    stop = StopRequest(lambda: messages.append("leaving"))

    for _ in range(3):
        stop.signal()
    stop.leave()

    assert messages == ["leaving"]
    assert stop.hurry.is_set()
