"""Each kind of limit is used and kept by whole agents, on a server that enforces it by itself."""

from collections.abc import Callable

import pytest

from docllm.schemas.runtime.clock import SystemClock
from tests.integration.providers.limited_runs import started
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import RehearsalLLM
from tests.invariants.evidence import Call
from tests.servers import Redis

START_S = 6.0  # the levels begin empty, and what calls cost is learned
SPAN_S = 15.0
MINUTE_S = 60.0
MANY = 1500
# About ten calls a second, by the tokens of the test's tasks.
COSTS: dict[str, Callable[[Call], int]] = {
    "tpm": lambda call: call.tokens_in + call.tokens_out,
    "itpm": lambda call: call.tokens_in,
    "otpm": lambda call: call.tokens_out,
}
LIMITS = {"tpm": 32_000, "itpm": 18_000, "otpm": 14_000}


def used(deployment: Deployment, llm: RehearsalLLM, name: str) -> float:
    """Return which part of a limit is used, measured from now on."""
    from_s = SystemClock().now_s()
    to_s = from_s + SPAN_S
    deployment.until(lambda: SystemClock().now_s() >= to_s + 1, "the span to pass")
    cost = sum(COSTS[name](call) for call in llm.calls() if from_s <= call.start_s < to_s)
    return cost / (LIMITS[name] / MINUTE_S * SPAN_S)


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [
        ("embedded", "itpm", {}),
        ("embedded", "otpm", {"charge": "input_then_output"}),
        ("on_kafka", "tpm", {"in_flight": 20}),
    ],
)
def test_a_limit_of_tokens_is_used_and_kept(
    kind: str,
    name: str,
    more: dict[str, int | str],
    request: pytest.FixtureRequest,
    settings: Callable[[Deployment, str], None],
    redis_server: Redis,
) -> None:
    """Agents learn what calls cost, and none is refused; `status` names the limit."""
    deployment: Deployment = request.getfixturevalue(kind)
    set_limits = {name: LIMITS[name], **more}
    values = [f"{key} = {value!r}".replace("'", '"') for key, value in set_limits.items()]
    settings(deployment, "\n".join(["[llm]", *values]))
    options = [f"--{key.replace('_', '-')}={value}" for key, value in set_limits.items()]
    deployment.llm("--latency", "0.2-0.6", *options)
    deployment.environ["DOCLLM_REDIS_URL"] = redis_server.url
    deployment.load(MANY)

    llm = started(deployment, 2, START_S)

    assert 0.8 <= used(deployment, llm, name) <= 1.05
    assert f"default waits for its {name}: {LIMITS[name]:,} per minute" in (
        deployment.producer("status")
    )
    assert [call for call in llm.calls() if call.status == 429] == []


def test_no_call_is_made_beyond_the_limit_of_a_day(
    embedded: Deployment, settings: Callable[[Deployment, str], None], redis_server: Redis
) -> None:
    """The rest waits, and `status` says so."""
    settings(embedded, "[llm]\nrpd = 30\n")
    embedded.environ["DOCLLM_REDIS_URL"] = redis_server.url
    llm = embedded.llm("--latency", "0.1")
    embedded.load(60)
    for _ in range(2):
        embedded.agent()

    embedded.until(
        lambda: "default waits for its rpd: 30" in embedded.producer("status"), "the day's end"
    )

    embedded.until_settled(30)
    assert len(llm.calls()) == 30
