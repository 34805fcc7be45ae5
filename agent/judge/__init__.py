"""Judges what a reply or a failed call means for its task, by pure functions.

Nothing here reads a clock, draws a random number or calls a server.
"""

from docllm.agent.judge.classes import CLASSES, Action, Effect, action_of, effect_of
from docllm.agent.judge.judgement import JudgeFacts, judge, outcome_of_failure, unjudged
from docllm.agent.judge.tiers import SPREAD, Tier, tiers_of
from docllm.schemas.text.fingerprint import fingerprint
from docllm.schemas.text.wording import one_line

__all__ = [
    "CLASSES",
    "SPREAD",
    "Action",
    "Effect",
    "JudgeFacts",
    "Tier",
    "action_of",
    "effect_of",
    "fingerprint",
    "judge",
    "one_line",
    "outcome_of_failure",
    "tiers_of",
    "unjudged",
]
