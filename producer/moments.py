"""Times as a person writes them: `2h`, `2h ago`, or an ISO time. Asks no clock."""

from datetime import UTC, datetime, timedelta

from schemas.errors import ConfigError
from schemas.topics import duration_s

_AGO = " ago"


def moment(text: str, now: datetime) -> datetime:
    """Return the time that `text` means, UTC without a zone, as `now` is; raise ConfigError for anything else.

    An ISO time without an offset is UTC.
    """
    written = text.strip()
    try:
        return now - timedelta(seconds=duration_s(written.removesuffix(_AGO).replace(" ", "")))
    except ConfigError:
        pass
    try:
        found = datetime.fromisoformat(written)
        return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is no time; write for example 2h, '3d ago', 2026-01-31 or 2026-01-31T08:00Z (UTC)") from None


def written(moment: datetime) -> str:
    """Return a stored time, UTC without a zone, as ISO text."""
    return f"{moment.isoformat(timespec='seconds')}Z"
