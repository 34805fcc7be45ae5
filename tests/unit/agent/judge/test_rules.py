"""The outcome of a handler's error by the rules of its type."""

import json

import pytest

from docllm.agent.judge.classes import Action, action_of, names_of
from docllm.schemas.settings.config import TypeConfig

AGAIN, UP = Action.RETRY, Action.GIVE_UP


class BadInvoiceError(ValueError):
    pass


@pytest.mark.parametrize(
    ("error", "retry", "give_up", "action"),
    [
        (ValueError(), "", "", AGAIN),
        (ValueError(), "ValueError", "", AGAIN),
        (ValueError(), "", "ValueError", UP),
        (ValueError(), "OSError", "", UP),
        (ValueError(), "", "OSError", AGAIN),
        (ValueError(), "OSError", "KeyError", UP),
        (ConnectionResetError(), "OSError", "", AGAIN),
        (ConnectionResetError(), "OSError", "ConnectionError", UP),
        (ConnectionResetError(), "ConnectionError", "OSError", AGAIN),
        (ConnectionResetError(), "ConnectionResetError", "ConnectionResetError", UP),
        (ConnectionResetError(), "ConnectionError", "Exception", AGAIN),
        (BadInvoiceError(), "", "BadInvoiceError", UP),
        (BadInvoiceError(), "", f"{__name__}.BadInvoiceError", UP),
        (BadInvoiceError(), "elsewhere.BadInvoiceError", "", UP),
        (BadInvoiceError(), "BadInvoiceError", "ValueError", AGAIN),
        (json.JSONDecodeError("x", "", 0), "", "json.decoder.JSONDecodeError", UP),
        (json.JSONDecodeError("x", "", 0), "", "builtins.ValueError", UP),
        (json.JSONDecodeError("x", "", 0), "", "Value", AGAIN),
    ],
)
def test_the_nearest_rule_decides(
    error: Exception, retry: str, give_up: str, action: Action
) -> None:
    """The nearest rule decides, by bare or dotted names of the error's class and its bases.

    Errors without a rule depend on the list.
    """
    rules = TypeConfig(retry=tuple(retry.split()), give_up=tuple(give_up.split()))

    assert action_of(names_of(error), rules) is action
