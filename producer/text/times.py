"""Times as a person writes them: `2h`, `2h ago`, or an ISO time. Asks no clock."""

from datetime import UTC, datetime, timedelta

from docllm.schemas.errors import ConfigError
from docllm.schemas.task.record.topics import duration_s

_AGO = " ago"


def moment(text: str, now: datetime) -> datetime:
    """Return the time that `text` means at `now`, UTC without a zone.

    An ISO time without an offset is UTC. Raises ConfigError for any other text.
    """
    try:
        return _before(text.strip(), now) or _iso(text.strip())
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text!r} is not a time; write for example 2h, '3d ago', "
            "2026-01-31 or 2026-01-31T08:00Z (UTC)"
        ) from None


def _before(text: str, now: datetime) -> datetime | None:
    try:
        passed_s = duration_s(text.removesuffix(_AGO).replace(" ", ""))
    except ConfigError:
        return None
    return now - timedelta(seconds=passed_s)


def _iso(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def written(moment: datetime) -> str:
    """Return a stored time, UTC without a zone, as ISO text."""
    return f"{moment.isoformat(timespec='seconds')}Z"
