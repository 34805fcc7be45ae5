"""What an agent tells its parent about the group's work: a line for each message."""

from dataclasses import asdict, dataclass

import orjson

from docllm.producer.ledger.status.progress import Totals
from docllm.schemas.text.wording import one_line


@dataclass(frozen=True, slots=True)
class DeadExample:
    """A dead task of an error class, in words."""

    error_class: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A warning at the end of all work; `code` is that of its section in the runbook."""

    text: str
    code: str


ProgressMessage = Totals | DeadExample | Note
_NAMES: dict[str, type[ProgressMessage]] = {"totals": Totals, "example": DeadExample, "note": Note}


def to_line(message: ProgressMessage) -> bytes:
    """Return a message as a line without its end."""
    (name,) = (name for name, form in _NAMES.items() if isinstance(message, form))
    return orjson.dumps({name: asdict(message)})


def from_line(line: bytes) -> ProgressMessage | None:
    """Return the message of a line; None if it is none. A handler may write anything."""
    try:
        ((name, values),) = orjson.loads(line).items()
        return _NAMES[name](**values)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def dead_example(error_class: str, task: str, batch: str, error: str) -> DeadExample:
    """Return an example for a person."""
    return DeadExample(error_class, one_line(f"task {task} of batch {batch}: {error}"))
