"""Faults of every class in the provider's answers, set in the running rehearsal LLM."""

from collections.abc import Callable
from urllib.request import urlopen

import orjson

from tests.faults.fault import Cost, Fault, Kind

# The faults by the name of the kind; `{}` is a random share.
FAULTS = {
    "429": "429={}",
    "429-retry-after": "429={},retry_after=2",
    "500": "500={}",
    "502": "502={}",
    "503": "503={}",
    "529": "529={}",
    "401": "401={}",
    "quota": "quota={}",
    "hang": "hang={}",
    "cut": "cut={}",
    "malformed": "malformed={}",
    "wrong-schema": "wrong_schema={}",
    "huge": "huge={}",
    "slow": "slow={},slow_s=3",
    "400": "400={}",
}
# Faults of the provider, not of a task. If all calls end with one, it is an outage.
OUTAGES = {"429", "500", "502", "503", "529", "401", "quota", "cut"}
SHARES = {"huge": (0.02, 0.05), "400": (0.02, 0.1), "hang": (0.1, 0.4)}
USUAL_SHARE = (0.2, 0.9)
OUTAGE_SHARE = 0.4


def dialed(name: str) -> Callable[[Fault], None]:
    """Return the fault that makes calls end this way for a while."""

    def act(fault: Fault) -> None:
        text = FAULTS[name].format(_share(fault, name))
        key = text.partition("=")[0]
        before = _faults(fault).get(key, 0)
        fault.begin("llm")
        fault.evidence["dialed"] = text
        fault.site.llm.dial(text)
        fault.hold(lambda: _faults(fault).get(key, 0) > before)
        fault.site.llm.dial()
        fault.evidence["calls"] = _faults(fault).get(key, 0) - before

    return act


def _share(fault: Fault, name: str) -> float:
    """Return a random share of the calls.

    It is often all of them, which is an outage, if the kind can be one.
    """
    if name in OUTAGES and fault.chance.random() < OUTAGE_SHARE:
        return 1
    return round(fault.chance.uniform(*SHARES.get(name, USUAL_SHARE)), 3)


def _faults(fault: Fault) -> dict[str, int]:
    # Our own server.
    with urlopen(fault.site.llm.url.replace("/v1", "/stats"), timeout=10) as answer:  # noqa: S310
        counts: dict[str, int] = orjson.loads(answer.read())["faults"]
    return counts


KINDS = tuple(
    Kind(f"llm-{name}", dialed(name), ("llm",), (3, 12), Cost.REPLY, 0.6) for name in FAULTS
)
