"""Runs of agents under a provider's limits, from the time when they use them."""

from collections.abc import Callable

from docllm.schemas.runtime.clock import SystemClock
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import RehearsalLLM

START_S = 5.0  # the levels begin empty, and programs start


def passed(
    deployment: Deployment, span_s: float, each: Callable[[float], object] = lambda _now_s: None
) -> None:
    """Let time pass; do something again and again meanwhile."""
    until_s = SystemClock().now_s() + span_s

    def over() -> bool:
        each(SystemClock().now_s())
        return SystemClock().now_s() >= until_s

    deployment.until(over, "the time to pass")


def started(deployment: Deployment, agents: int, start_s: float = START_S) -> RehearsalLLM:
    """Start agents; return their LLM once they have used it for a while."""
    for _ in range(agents):
        deployment.agent()
    (llm,) = deployment.llms
    deployment.until(llm.calls, "the first call")
    passed(deployment, start_s)
    return llm
