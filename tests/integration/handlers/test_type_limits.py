"""Types with limits and hours of their own."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.support.deployment import Deployment
from tests.integration.support.installations import repeated_on_embedded


def lines(kind: str, count: int) -> list[dict[str, str]]:
    return [{"id": f"{kind}{number}", "type": kind, "prompt": "Write."} for number in range(count)]


@repeated_on_embedded
def test_a_type_waits_for_its_hours_and_holds_nobody_up(deployment: Deployment) -> None:
    """Other tasks are done; status and the agent say why the rest waits, and a change ends that.

    Nothing is counted.
    """
    deployment.llm("--latency", "0.02")
    begins = datetime.now(UTC) + timedelta(hours=5)
    hours = f"{begins:%H}:00-{begins:%H}:30 UTC"
    file = deployment.folder / "docllm.toml"
    file.write_text(f"[types.night]\nschedule = '{hours}'\n")
    deployment.producer(
        "load", str(deployment.write_lines([*lines("night", 40), *lines("document", 20)]))
    )
    agent = deployment.agent("--until-done")
    why = f"tasks of type night wait for their hours ({hours}), which begin in "
    deployment.until(
        lambda: any(why in reason for reason in deployment.status()["reasons"]),
        "status to say why tasks wait",
    )
    deployment.until_settled(20)
    deployment.until(lambda: why in agent.err, "the agent to say why it waits")
    assert deployment.ledger.counts()["succeeded"] == 20
    assert agent.running

    file.write_text("[types.night]\n")

    assert agent.wait() == 0, agent.tail()
    assert deployment.ledger.counts()["succeeded"] == 60
    assert {task.attempt for task in deployment.ledger.tasks()} == {0}


@pytest.mark.parametrize("limit", ["slots", "in_flight"])
def test_a_type_has_so_many_calls_at_once(embedded: Deployment, limit: str) -> None:
    """The tasks of another type do not wait behind those that the slots keep waiting."""
    llm = embedded.llm("--latency", "0.3")
    (embedded.folder / "docllm.toml").write_text(f"[types.heavy]\n{limit} = 2\n")
    tasks = [*lines("heavy", 30), *lines("document", 30)]
    embedded.producer("load", str(embedded.write_lines(tasks)))

    embedded.until_done("--slots", "16")

    def busy(kind: str) -> int:
        calls = [call for call in llm.calls() if call.name.startswith(f"tasks/{kind}")]
        assert len(calls) == 30
        moments = [call.start_s for call in calls]
        return max(
            sum(call.start_s <= at_s < (call.end_s or at_s) for call in calls) for at_s in moments
        )

    assert busy("heavy") == 2
    assert busy("document") > 2
    documents, heavy = (
        sorted(call.end_s or 0.0 for call in llm.calls() if f"/{kind}" in call.name)
        for kind in ("document", "heavy")
    )
    assert documents[-1] < heavy[20]


HANDLER = """
async def visit(context):
    async with context.limit("crm"):
        messages = [{"role": "user", "content": context.prompt}]
        return await context.complete({"model": context.model, "messages": messages})
"""


def test_handlers_use_a_named_limit(embedded: Deployment) -> None:
    """No more calls run at once than the limit has room for, and all tasks end."""
    llm = embedded.llm("--latency", "0.2")
    (embedded.folder / "visits.py").write_text(HANDLER)
    (embedded.folder / "docllm.toml").write_text(
        "[types.visit]\nhandler = 'visits:visit'\n[limits.crm]\nin_flight = 3\n"
    )
    embedded.producer("load", str(embedded.write_lines(lines("visit", 20))))

    embedded.until_done("--slots", "16")

    calls = llm.calls()
    assert len(calls) == 20
    at_once = [
        sum(call.start_s <= other.start_s < (call.end_s or 0.0) for call in calls)
        for other in calls
    ]
    assert max(at_once) == 3


def test_a_line_may_have_a_time_limit_of_its_own(embedded: Deployment) -> None:
    """It ends chats, OpenAI's lines and map-reduce; a longer one than the type's is refused."""
    embedded.llm("--latency", "60")
    chat = {"messages": [{"role": "user", "content": "Write."}]}
    short: dict[str, object] = {"time_limit_s": 1.5, "max_attempts": 1}
    tasks: list[dict[str, object]] = [
        *({"id": kind, "type": kind, "prompt": "Write."} | short for kind in ("document", "quick")),
        {"id": "long", "type": "quick", "prompt": "Write.", "time_limit_s": 21},
        {"id": "map", "type": "map-reduce", "prompt": "{document}", "input": {"text": "x"}} | short,
        {"custom_id": "openai", "body": chat, "time_limit_s": 1.5},
    ]
    (embedded.folder / "docllm.toml").write_text(
        "[types.quick]\ntime_limit_s = 20\n[types.openai]\nmax_attempts = 1\n"
    )

    embedded.producer("load", str(embedded.write_lines(tasks)), code=1)
    refusal = "time_limit_s is 21, and an attempt of type quick has 20 s at most"
    assert refusal in embedded.said()
    embedded.agent()

    ended = "HANDLER: the handler did not return within the 1.5 s of its line's time_limit_s"

    def held_back() -> set[str]:
        """Return the types whose tasks all failed so."""
        reasons = [reason for reason in embedded.status()["reasons"] if ended in reason]
        kinds = ("document", "quick", "map-reduce", "openai")
        return {kind for kind in kinds if any(f"type {kind}," in reason for reason in reasons)}

    embedded.until(lambda: len(held_back()) == 4, "the attempts to end")
