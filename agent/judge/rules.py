"""Decides what a handler's error means for its task, by the rules of the task's type. Pure."""

from agent.judge.classes import Action
from schemas.settings.config import TypeConfig


def action_of(error: BaseException, rules: TypeConfig) -> Action:
    """Return whether the task is tried again or given up.

    A rule names a class of errors by its bare name or by its dotted name, as a traceback shows it.
    It applies to subclasses too; the nearest class decides. An error without a rule is tried again,
    unless the type lists the errors to try again.
    """
    for kind in type(error).__mro__:
        names = {kind.__name__, f"{kind.__module__}.{kind.__qualname__}"}
        if not names.isdisjoint(rules.give_up):
            return Action.GIVE_UP
        if not names.isdisjoint(rules.retry):
            return Action.RETRY
    return Action.GIVE_UP if rules.retry else Action.RETRY
