"""The judge: what a reply or a failed call means for its task, as pure functions. It reads no clock, draws no number, calls nobody."""

from agent.policy.classes import CLASSES, REFUSED, Action, Effect, ErrorClass, effect_of
from agent.policy.judge import Terms, judge, refused, unjudged
from agent.policy.rules import action_of
from agent.policy.tiers import Tier, tiers_of
from schemas.fingerprint import fingerprint
from schemas.wording import one_line

__all__ = [
    "CLASSES", "REFUSED", "Action", "Effect", "ErrorClass", "Terms", "Tier", "action_of", "effect_of", "fingerprint", "judge", "one_line",
    "refused", "tiers_of", "unjudged",
]  # fmt: skip
