"""Which dead letters a person selects. Pure: `selection_query` makes queries of it."""

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from docllm.producer.text.times import written
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.failures import Disposition

DISPOSITIONS = tuple(disposition.value for disposition in Disposition)
OF_RECORDS = frozenset({Disposition.REJECTED.value, Disposition.UNDECODABLE.value})
RECORD = "quarantine:"  # the prefix that names a quarantined record where a task's id may stand

_MIN_DIGITS = 6  # a person may shorten a fingerprint to so many
_MAX_DIGITS = 32
_HEX = frozenset("0123456789abcdef")
_OF_TASKS = ("batch", "type", "tenant", "key")
_OF_DEATHS = ("dispositions", "fingerprint", "since", "until", "record")
_OPTIONS = {"dispositions": "disposition", "key": "id", "record": "id"}


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters that must all hold, apart from those that are not set.

    Times are UTC without a zone, and `until` is exclusive. `record` is the id of a quarantine row.
    `cancelled` selects cancelled tasks instead of dead letters. Raises ConfigError for filters that
    contradict each other or cannot be right.
    """

    dispositions: tuple[str, ...] = ()
    fingerprint: str | None = None
    batch: str | None = None
    type: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    key: str | None = None
    record: int | None = None
    limit: int | None = None
    cancelled: bool = False

    def __post_init__(self) -> None:
        digits = self.fingerprint
        if digits is not None and not _is_fingerprint(digits):
            raise ConfigError(
                f"fingerprint {digits!r}: write at least its first {_MIN_DIGITS} hexadecimal "
                "digits, as `dead list` shows them"
            )
        if digits is not None and set(digits) == {"f"}:
            raise ConfigError(
                f"fingerprint {digits}: it stands for the further errors of a batch, which are "
                "not counted one by one; select them by --batch, --disposition or --since"
            )
        if self.cancelled and (stray := self._set(_OF_DEATHS)):
            raise ConfigError(
                f"{', '.join(stray)} selects dead letters; leave it out, or leave out --cancelled"
            )

    @property
    def narrows(self) -> bool:
        """Whether any filter is set; a limit alone is no filter."""
        return bool(self._set((*_OF_TASKS, *_OF_DEATHS))) or self.cancelled

    @property
    def with_tasks(self) -> bool:
        """Whether the selection may include tasks."""
        return self.record is None

    @property
    def with_records(self) -> bool:
        """Whether the selection may include quarantined records.

        Quarantined records have no batch, type, tenant or id.
        """
        return not self._set(_OF_TASKS) and not self.cancelled

    @property
    def names_records(self) -> bool:
        """Whether the selection asks for quarantined records by name.

        It is not enough that the filters would include them.
        """
        return self.with_records and bool(
            OF_RECORDS & set(self.dispositions) or self.fingerprint or self.record is not None
        )

    @property
    def fingerprint_range(self) -> tuple[bytes, bytes]:
        """The first and the last fingerprint with the given first digits."""
        digits = self.fingerprint or ""
        first, last = (digits.ljust(_MAX_DIGITS, filler) for filler in "0f")
        return bytes.fromhex(first), bytes.fromhex(last)

    def _set(self, names: tuple[str, ...]) -> list[str]:
        return [
            f"--{_OPTIONS.get(name, name)}"
            for name in names
            if getattr(self, name) not in (None, ())
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the filters that are set, as JSON values."""
        values = {
            name: value for name, value in asdict(self).items() if value not in (None, (), False)
        }
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in values.items()
        }

    def __str__(self) -> str:
        filters = {
            name: written(value) if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
        }
        filters["dispositions"] = ",".join(self.dispositions)
        filters["record"] = None if self.record is None else f"{RECORD}{self.record}"
        options = [
            f"--{_OPTIONS.get(name, name)} {value}"
            for name, value in filters.items()
            if value and value is not True
        ]
        if self.cancelled:
            options.append("--cancelled")
        return " ".join(options) or "--all"


def _is_fingerprint(digits: str) -> bool:
    return _MIN_DIGITS <= len(digits) <= _MAX_DIGITS and _HEX.issuperset(digits)


def selection_of(values: dict[str, Any]) -> Selection:
    """Return the selection that `as_json` described; filters of other versions are ignored."""
    names = {field.name for field in fields(Selection)}
    filters = {name: value for name, value in values.items() if name in names}
    for name in filters.keys() & {"since", "until"}:
        filters[name] = datetime.fromisoformat(filters[name])
    filters["dispositions"] = tuple(filters.get("dispositions", ()))
    return Selection(**filters)
