"""The judge: what a reply or a failed call means for its task, as pure functions. It reads no clock, draws no number, calls nobody."""

from agent.policy.classes import CLASSES, Action, Effect, ErrorClass, effect_of
from agent.policy.judge import Terms, judge, refused
from agent.policy.tiers import Tier, tiers_of
from agent.policy.wording import fingerprint, one_line

__all__ = [
    "CLASSES", "Action", "Effect", "ErrorClass", "Terms", "Tier", "effect_of", "fingerprint", "judge", "one_line", "refused", "tiers_of",
]  # fmt: skip
