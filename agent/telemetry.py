"""What an agent counts, and the one line in which it says how it is."""

import logging
from dataclasses import dataclass, field

from agent.outcome import Cancelled, Dead, Moved, Outcome, Released, Retry, Snooze, Succeeded
from agent.ports import Verdict
from producer.shown import log_to_stderr

_NAMES = {
    Succeeded: "succeeded", Dead: "dead", Snooze: "snoozed", Retry: "retried", Moved: "moved", Cancelled: "cancelled",
    Released: "released",
}  # fmt: skip
_INSTEAD = {Verdict.HELD_BACK: "moved", Verdict.REOPENED: "released"}


@dataclass(slots=True)
class Counts:
    """Since the start of this agent."""

    succeeded: int = 0
    dead: int = 0
    snoozed: int = 0
    retried: int = 0
    moved: int = 0
    cancelled: int = 0
    released: int = 0
    fenced: int = 0
    given_up: int = 0
    quarantined: int = 0
    attempts: int = 0  # that were begun; some end before a call, as where the document cannot be read
    last_settled_s: float | None = None
    notices: dict[str, str] = field(default_factory=dict)  # why nothing runs, by source of the reason

    def note(self, outcome: Outcome, verdict: Verdict, now_s: float) -> None:
        """Count a settlement."""
        if verdict is Verdict.FENCED:
            self.fenced += 1
        elif verdict is Verdict.GIVEN_UP:
            self.given_up += 1
        else:
            name = _INSTEAD.get(verdict) or _NAMES[type(outcome)]
            setattr(self, name, getattr(self, name) + 1)
            if name != "released":
                self.last_settled_s = now_s

    def notice(self) -> str:
        """Return the reasons why something does not run, for `status`."""
        return "; ".join(text for _, text in sorted(self.notices.items()) if text)[:500]

    def summary(self) -> str:
        """Return the counts for a log line."""
        names = "succeeded retried dead cancelled moved snoozed released fenced given_up quarantined attempts".split()
        return ", ".join(f"{getattr(self, name)} {name.replace('_', ' ')}" for name in names if getattr(self, name) or name == "succeeded")

    def topic(self, name: str, *, known: bool) -> None:
        """Note whether a topic is the one whose id `topics apply` stored; any other is not read."""
        self.say(name, "" if known else f"topic {name} paused: it is missing or was made again, run: python -m producer topics apply")

    def say(self, source: str, text: str) -> None:
        """Note a reason; an empty text takes it back."""
        if text:
            self.notices[source] = text
        else:
            self.notices.pop(source, None)


def configure_logging(level: str, number: int | None = None, config_file: str | None = None) -> None:
    """Log to stderr: time, level, the number of this agent among several of one parent, module, message."""
    who = f"[{number}] " if number else ""
    log_to_stderr(f"%(asctime)s %(levelname)-7s {who}%(name)s: %(message)s", level, config_file)
    logging.getLogger("alembic").setLevel(logging.WARNING)
