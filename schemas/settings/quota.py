"""The limits of a provider's account for one model, and those of the group's own.

Nothing is counted here: these are the values from the settings.
"""

from dataclasses import dataclass, fields
from enum import StrEnum

from docllm.schemas.settings import kinds
from docllm.schemas.settings.kinds import setting

REQUESTS = kinds.whole(1, 100_000_000)
_TOKENS = kinds.whole(1, 1_000_000_000_000)
CALLS = kinds.whole(1, 1_000_000)
_WEIGHT = kinds.real(0.01, 1000)
_AT_ONCE = "most {} at once, of all agents together"


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
    """The limits of one account for one model, kept by all agents together; None is no limit."""

    rpm: int | None = setting(
        REQUESTS, "the provider's limit of requests a minute, kept by all agents together"
    )
    tpm: int | None = setting(_TOKENS, "the provider's limit of tokens a minute, prompt and answer")
    itpm: int | None = setting(_TOKENS, "the provider's limit of prompt tokens a minute")
    otpm: int | None = setting(_TOKENS, "the provider's limit of answer tokens a minute")
    rpd: int | None = setting(REQUESTS, "the provider's limit of requests a day (UTC)")
    in_flight: int | None = setting(CALLS, _AT_ONCE.format("calls"))
    charge: ChargeRule = setting(
        kinds.choice(ChargeRule),
        "what counts toward the token limits: `max_then_refund` for the longest answer until "
        "its length is known, `max_kept` for the longest answer always, `input_then_output` for "
        "the prompt first and the answer as it ends",
        ChargeRule.MAX_THEN_REFUND,
    )

    @property
    def given(self) -> dict[str, int]:
        """The limits that are set, by name."""
        limits = {name: getattr(self, name) for name in _NAMES}
        return {name: limit for name, limit in limits.items() if limit is not None}


# Agents read the limits that are set twice a second, so their names are collected once.
_NAMES = tuple(part.name for part in fields(QuotaLimits) if part.name != "charge")


NO_LIMITS = QuotaLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLimit:
    """A limit that handlers name in `context.limit`, such as that of a service they use."""

    rpm: int | None = setting(REQUESTS, "most uses that begin in a minute, of all agents together")
    in_flight: int | None = setting(CALLS, _AT_ONCE.format("uses"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantConfig:
    """A tenant's settings: its `weight`, and its most calls at once (None: no limit)."""

    weight: float = setting(
        _WEIGHT, "the tenant's part beside others that wait too; 2 is twice as much as 1", 1.0
    )
    in_flight: int | None = setting(
        CALLS, "most calls at once of this tenant, of all agents together"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantDefaults:
    """What holds for every tenant without settings of its own."""

    weight: float = setting(_WEIGHT, "as `tenants.NAME.weight`, for tenants without a section", 1.0)
    in_flight: int | None = setting(
        CALLS, "as `tenants.NAME.in_flight`, for each tenant without a section"
    )
    overflow: int = setting(
        kinds.whole(0, 1_000_000_000),
        "unfinished tasks of a tenant from which on its next ones go to the bulk lane; 0 is never",
        10_000,
    )
