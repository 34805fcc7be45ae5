"""The limits of a provider's account for one model, and what tenants may take of them.

Nothing is counted here: these are the values from the settings.
"""

from dataclasses import dataclass, fields
from enum import StrEnum


class ChargeRule(StrEnum):
    """What the provider charges for a call against its token limits, and when.

    `MAX_THEN_REFUND`: prompt and longest answer as the call begins; what the answer did not need is
    given back. `MAX_KEPT`: the same, but nothing is given back. `INPUT_THEN_OUTPUT`: the prompt as
    the call begins, and the answer as it ends.
    """

    MAX_THEN_REFUND = "max_then_refund"
    MAX_KEPT = "max_kept"
    INPUT_THEN_OUTPUT = "input_then_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimits:
    """The limits of one account for one model, kept by all agents together; None is no limit.

    Requests and tokens a minute (`rpm`, `tpm`; `itpm` of prompts, `otpm` of answers), requests a
    day (`rpd`), and calls at once (`in_flight`).
    """

    rpm: int | None = None
    tpm: int | None = None
    itpm: int | None = None
    otpm: int | None = None
    rpd: int | None = None
    in_flight: int | None = None
    charge: ChargeRule = ChargeRule.MAX_THEN_REFUND

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by name."""
        limits = {part.name: getattr(self, part.name) for part in fields(self)}
        return {
            name: limit for name, limit in limits.items() if limit is not None and name != "charge"
        }


NO_LIMITS = QuotaLimits()
LIMIT_NAMES = tuple(part.name for part in fields(QuotaLimits))


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantConfig:
    """A tenant's settings: its `weight`, and its most calls at once (None: no limit)."""

    weight: float = 1.0
    in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantDefaults:
    """What holds for every tenant without settings of its own.

    `overflow`: unfinished tasks from which on a tenant's next ones go to the bulk lane; 0 is never.
    """

    weight: float = 1.0
    in_flight: int | None = None
    overflow: int = 10_000
