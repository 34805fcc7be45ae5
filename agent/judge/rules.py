"""Decides what a handler's error means for its task, by the rules of the task's type. Pure."""

from collections.abc import Sequence

from docllm.agent.judge.classes import Action
from docllm.schemas.settings.config import TypeConfig


def action_of(names: Sequence[Sequence[str]], rules: TypeConfig) -> Action:
    """Return whether the task of an error with these names is tried again or given up.

    A rule names a class of errors by its bare name or by its dotted name, as a traceback shows it.
    It applies to subclasses too; the nearest class decides. An error without a rule is tried again,
    unless the type lists the errors to try again.
    """
    for of_class in names:
        if not set(of_class).isdisjoint(rules.give_up):
            return Action.GIVE_UP
        if not set(of_class).isdisjoint(rules.retry):
            return Action.RETRY
    return Action.GIVE_UP if rules.retry else Action.RETRY


def names_of(error: BaseException) -> list[list[str]]:
    """Return the bare and the dotted name of an error's class, then of each class above it."""
    return [
        [kind.__name__, f"{kind.__module__}.{kind.__qualname__}"] for kind in type(error).__mro__
    ]
