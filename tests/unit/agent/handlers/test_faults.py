"""What a handler's error says, wherever it was raised."""

from docllm.agent.handlers import CallRefusedError, GiveUpError, TryAgainError
from docllm.agent.handlers.faults import Decision, Fault, RemoteError, deciding_leaf, fault_of
from docllm.agent.ports.outcome import Dead, Failure, Spent
from docllm.schemas.task.failures import ErrorClass


def fail(error: BaseException) -> None:
    raise error


def raised(error: BaseException) -> Fault:
    try:
        fail(error)
    except BaseException as caught:  # noqa: BLE001 - any error
        return fault_of(caught, caught)
    raise AssertionError


def test_an_error_has_a_text_its_names_and_a_place() -> None:
    """The names are those of its class and of each class above it."""
    fault = raised(ConnectionResetError("gone"))

    assert fault.text == "ConnectionResetError: gone"
    assert fault.names[:2] == [
        ["ConnectionResetError", "builtins.ConnectionResetError"],
        ["ConnectionError", "builtins.ConnectionError"],
    ]
    assert "test_faults.py" in fault.place
    assert "raise error" in fault.traceback


def test_a_decision_of_the_handler_is_kept() -> None:
    """The decision's text is what the handler said, without the class."""
    up, again = raised(GiveUpError("no invoice")), raised(TryAgainError("later", after_s=7.0))

    assert (up.text, up.decision) == ("no invoice", Decision.GIVE_UP)
    assert (again.text, again.decision, again.after_s) == ("later", Decision.TRY_AGAIN, 7.0)


def test_an_error_of_another_process_says_what_it_said_there() -> None:
    """The place in the agent where it arrives means nothing."""
    fault = raised(ValueError("x"))

    assert raised(RemoteError(fault)) == fault


def test_a_refused_call_decides_in_a_group() -> None:
    """In a group without a refused call, the first error decides."""
    refused = CallRefusedError(Dead(Failure(ErrorClass.HANDLER, "no"), Spent()))
    first, second = ValueError("1"), ValueError("2")

    assert deciding_leaf(ExceptionGroup("", [first, refused]), CallRefusedError) is refused
    assert deciding_leaf(ExceptionGroup("", [first, second]), CallRefusedError) is first
