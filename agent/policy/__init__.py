"""The judge: what a reply or a failed call means for its task, as pure functions. It reads no clock, draws no number, calls nobody."""

from agent.policy.classes import CLASSES, ROUTE_WIDE, Action, ErrorClass
from agent.policy.judge import Terms, judge, refused
from agent.policy.wording import fingerprint, one_line

__all__ = ["CLASSES", "ROUTE_WIDE", "Action", "ErrorClass", "Terms", "fingerprint", "judge", "one_line", "refused"]
