"""The log says why attempts fail, at once and then seldom."""

from docllm.agent.ports.outcome import Failure
from docllm.agent.reporting.telemetry import LINE_EVERY_S, Retries
from docllm.schemas.task.failures import ErrorClass


def refused(number: int = 1) -> Failure:
    """Return the failure of a call that found no server."""
    return Failure(ErrorClass.NETWORK, f"connection {number} refused")


def test_the_first_of_a_class_is_told_at_once_and_the_others_once_a_minute() -> None:
    """A class is told again only a minute later, and only if more attempts failed."""
    retries = Retries()
    retries.note(refused())
    first = retries.due(0.0, "g")
    retries.note(refused(2))
    retries.note(Failure(ErrorClass.SERVER, "500"))
    soon = retries.due(1.0, "g")
    later = retries.due(LINE_EVERY_S, "g")

    assert [line.partition(";")[0] for line in (*first, *soon, *later)] == [
        "1 attempt failed and will be made again, with NETWORK, such as: connection 1 refused",
        "1 attempt failed and will be made again, with SERVER, such as: 500",
        "2 attempts failed and will be made again, with NETWORK, such as: connection 2 refused",
    ]
    assert retries.due(LINE_EVERY_S * 3, "g") == []


def test_errors_of_handlers_are_left_to_their_own_lines() -> None:
    """The log has each handler's error with its traceback, and not once more here."""
    retries = Retries()
    retries.note(Failure(ErrorClass.HANDLER, "KeyError: 'total'"))

    assert retries.due(0.0, "g") == []
