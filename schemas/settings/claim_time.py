"""How the time of a claim is divided.

A claim may last for the longest time limit of a route plus CLAIM_MARGIN_S: after it, other agents
may take the task even while this agent lives. The attempt has the time until SETTLE_MARGIN_S before
that end: no call may last longer, so that its outcome can still be settled. The handler has
HANDLER_GRACE_S more than its calls: a call reaches its own limit first, so that a hanging provider
is not taken for a hanging handler. A type's longer time limit counts as that of a route; the
handlers of other types still have the time of the routes.

A task that is claimed ahead may wait for its slot first. The ledger's claims last longer by the
most that it waits, and the time of its attempt counts from its start.

A task's `deadline` has no part in this: only a claim looks at it.
"""

import math
from collections.abc import Iterable

from docllm.schemas.settings.changes import longest_timeout_s
from docllm.schemas.settings.config import Config, TypeConfig

CLAIM_MARGIN_S = 60.0
SETTLE_MARGIN_S = 30.0
HANDLER_GRACE_S = 5.0


def claim_s(longest_s: float, types: Iterable[TypeConfig]) -> float:
    """Return the length of a claim: the longest call and the longest attempt end within it."""
    limits_s = [settings.time_limit_s for settings in types if settings.time_limit_s is not None]
    return max(longest_s, *limits_s, 0.0) + CLAIM_MARGIN_S


def usual_limit_s(longest_s: float) -> float:
    """Return the time of a handler whose type sets no limit."""
    return longest_s + CLAIM_MARGIN_S - SETTLE_MARGIN_S + HANDLER_GRACE_S


def limit_of(config: Config, task_type: str) -> float:
    """Return the most time that an attempt of a type may have, whatever its line asks for.

    It is infinite for a type that these settings do not know: only its agents know its limit.
    """
    if task_type not in config.known_types:
        return math.inf
    own_s = config.type_settings(task_type).time_limit_s
    return usual_limit_s(longest_timeout_s(config)) if own_s is None else own_s


def over_limit(task_type: str, asked_s: float, most_s: float) -> tuple[str, str] | None:
    """Return why an attempt may not have the `time_limit_s` of its line, and the fix, if so."""
    if asked_s <= most_s:
        return None
    problem = f"is {asked_s:g}, and an attempt of type {task_type} has {most_s:g} s at most"
    return problem, f"write a smaller number, or a larger time_limit_s into [types.{task_type}]"
