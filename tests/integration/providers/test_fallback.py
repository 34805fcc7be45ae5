"""Whole programs whose routes fall back: when a provider is away, full or refuses a task."""

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import RehearsalLLM, most_at_once
from tests.servers import Redis

Settings = Callable[[Deployment, str], None]
RPM, AT_ONCE = 600, 3


def two_routes(
    deployment: Deployment,
    settings: Settings,
    *first: str,
    on: str = "OUTAGE",
    second: Iterable[str] = (),
    limits: str = "",
) -> tuple[RehearsalLLM, RehearsalLLM]:
    """Configure route `a`, which begins with these faults, with the fallback `b`.

    `second` are options of the server of `b`, and `limits` are settings of that route.
    """
    llms = (
        deployment.llm("--latency", "0.05", *first),
        deployment.llm("--latency", "0.05", *second),
    )
    prices = "".join(
        f'[prices."{model}"]\ninput_per_mtok = {price}\n'
        for model, price in (("small", 1.0), ("large", 1000.0))
    )
    settings(
        deployment,
        f"""
        [routes.a]
        base_url = "{llms[0].url}"
        model = "small"
        fallback = ["b"]
        fallback_on = ["{on}"]
        [routes.b]
        base_url = "{llms[1].url}"
        model = "large"
        {limits}
        {prices}
        """,
    )
    return llms


def load(deployment: Deployment, batch: str, numbers: Iterable[int], *options: str) -> None:
    """Load tasks of the model of route `a`; each third one may not leave that route."""
    lines = [
        task_line(number, model="small", **({} if number % 3 else {"routes_allowed": ["a"]}))
        for number in numbers
    ]
    path = deployment.write_lines(lines, batch)
    deployment.producer("load", str(path), "--batch", batch, *options)


def exported(deployment: Deployment, batch: str) -> list[dict[str, Any]]:
    """Return the lines of the export of a batch."""
    text = deployment.producer("export", "--batch", batch)
    return [orjson.loads(line) for line in text.splitlines()]


def tasks_called(llm: RehearsalLLM) -> set[str]:
    """Return the tasks that an LLM was called for."""
    return {call.name.partition("#")[0] for call in llm.calls() if "probe" not in call.name}


@repeated_on_embedded
def test_an_outage_moves_waiting_tasks_to_the_fallback_and_new_ones_go_back(
    deployment: Deployment, settings: Settings
) -> None:
    """While one provider is away its tasks run on the other one, but for those that may not.

    They start there within 5 s of the stop, nobody parks them, and nothing counts. When the first
    provider is back, the bound tasks and new ones run on it.
    """
    slow = ("--latency", "1")  # so that `status` is read before all have run there
    first, second = two_routes(deployment, settings, "--faults", "503=1", second=slow)
    load(deployment, "one", range(150))
    agent = deployment.agent("--until-done", "--slots", "16")

    deployment.until(
        lambda: any("its tasks run on route b" in why for why in deployment.status()["reasons"]),
        "status to say where the tasks run",
    )
    deployment.until_settled(100)
    deployment.until(
        lambda: not any("run on route b" in why for why in deployment.status()["reasons"]),
        "status to say nothing of b, since the tasks that are left may not run there",
    )
    first.dial()
    assert agent.wait() == 0, agent.tail()
    assert "tasks of route a run on b" in agent.err

    lines = exported(deployment, "one")
    bound = {f"t{number}" for number in range(0, 150, 3)}
    assert {line["id"] for line in lines if line["route"] == "a"} >= bound
    assert Counter(line["route"] for line in lines)["b"] >= 90
    assert all(line["status"] == "succeeded" for line in lines)
    assert all((line["model"] == "large") == (line["route"] == "b") for line in lines)
    assert not {name for name in tasks_called(second) if name.removeprefix("one/") in bound}
    refused = min(call.start_s for call in first.calls())
    assert min(call.start_s for call in second.calls()) - refused < 5 + 5
    assert max(line["attempts"] for line in lines) <= 2

    load(deployment, "two", range(30))
    deployment.until_done("--slots", "16")
    assert {line["route"] for line in exported(deployment, "two")} == {"a"}


def test_a_fallback_that_the_settings_gain_takes_the_tasks_that_wait(
    embedded: Deployment, settings: Settings
) -> None:
    """A person names it in the outage; the agent has read all tasks by then."""
    embedded.use_tiers("1s")
    two_routes(embedded, settings, "--faults", "503=1")
    file = embedded.folder / "docllm.toml"
    with_fallback = file.read_text()
    file.write_text(with_fallback.replace('fallback = ["b"]', ""))
    load(embedded, "one", range(1, 60, 3))
    agent = embedded.agent("--until-done", "--slots", "8")
    embedded.until(lambda: "route a stopped" in agent.err, "the first provider's outage")

    file.write_text(with_fallback)
    agent.signal(signal.SIGHUP)

    assert agent.wait() == 0, agent.tail()
    assert {line["route"] for line in exported(embedded, "one")} == {"b"}


def test_a_fallback_that_was_away_too_is_used_once_it_is_back(
    embedded: Deployment, settings: Settings
) -> None:
    """The first provider stays away, so nothing but its tasks can find the fallback well again."""
    embedded.use_tiers("1s")
    away = ("--faults", "503=1")
    _, second = two_routes(embedded, settings, *away, second=away)
    load(embedded, "one", range(1, 60, 3))
    agent = embedded.agent("--until-done", "--slots", "8")
    embedded.until(lambda: "route b stopped" in agent.err, "the outage of both providers")

    second.dial()

    assert agent.wait() == 0, agent.tail()
    assert {line["route"] for line in exported(embedded, "one")} == {"b"}


def test_a_task_that_is_too_long_goes_on_within_its_attempt(
    embedded: Deployment, settings: Settings
) -> None:
    """The attempt succeeds on the larger model; a task that may not leave its route is dead."""
    two_routes(embedded, settings, "--faults", "413=1", on="TOO_LONG")
    load(embedded, "one", range(30))

    embedded.until_done("--slots", "8")

    lines = {line["id"]: line for line in exported(embedded, "one")}
    for number in range(30):
        line = lines[f"t{number}"]
        expected = ("succeeded", "b", "large", 1) if number % 3 else ("dead", "a", None, 1)
        assert (line["status"], line["route"], line["model"], line["attempts"]) == expected
    assert all(line["cost"] > 0 for line in lines.values() if line["route"] == "b")
    shown = embedded.producer("dead", "show", "t0")
    assert "route a" in shown


def test_a_batch_is_bound_by_an_option_of_its_load(
    embedded: Deployment, settings: Settings
) -> None:
    """Lines that say nothing stay within the routes that `load` allowed."""
    _, second = two_routes(embedded, settings, "--faults", "413=1", on="TOO_LONG")
    path = embedded.write_lines([task_line(number, route="a") for number in range(20)], "bound")
    embedded.producer("load", str(path), "--routes-allowed", "a")

    embedded.until_done("--slots", "8")

    assert {line["status"] for line in exported(embedded, "bound")} == {"dead"}
    assert second.calls() == []


def test_a_route_that_nobody_configured_is_refused_with_the_known_ones(
    embedded: Deployment, settings: Settings
) -> None:
    """A line that names no route is a bad line, and a wrong option ends the load."""
    two_routes(embedded, settings)
    path = embedded.write_lines([task_line(1, route="aa"), task_line(2, route="b")], "bad")

    embedded.producer("load", str(path), code=1)
    done = embedded.run("producer", "load", str(path), "--routes-allowed", "a,x")

    rejects = (embedded.folder / "bad.jsonl.rejects.jsonl").read_text()
    assert "names 'aa', which is no route; did you mean" in orjson.loads(rejects)["error"] + (
        "; " + orjson.loads(rejects)["fix"]
    )
    assert done.code == 2, done
    assert "--routes-allowed: 'x' is no route" in done.err


def test_a_chain_that_never_ends_is_refused_by_every_program(
    embedded: Deployment, settings: Settings
) -> None:
    """The error shows the whole chain."""
    settings(
        embedded,
        "[routes.a]\nfallback = ['b']\n[routes.b]\nfallback = ['c']\n"
        "[routes.c]\nfallback = ['a']\n",
    )

    for command in (["agent", "--until-done", "--rehearsal"], ["producer", "check"]):
        done = embedded.run(*command, "--group", embedded.group)
        assert done.code == 2, done
        assert "routes.a.fallback leads back to itself: a -> b -> c -> a" in done.err


def test_a_fallback_keeps_its_own_limits(
    embedded: Deployment, settings: Settings, redis_server: Redis
) -> None:
    """While one provider is away its tasks take the turns of the other one's account."""
    embedded.environ["DOCLLM_REDIS_URL"] = redis_server.url
    first, second = two_routes(
        embedded,
        settings,
        "--faults",
        "503=1",
        second=("--rpm", str(RPM)),
        limits=f"rpm = {RPM}\nin_flight = {AT_ONCE}",
    )
    load(embedded, "one", range(150))
    agents = [embedded.agent("--until-done", "--slots", "16") for _ in range(2)]
    embedded.until_settled(100)
    first.dial()
    for agent in agents:
        assert agent.wait() == 0, agent.tail()

    lines = exported(embedded, "one")
    assert {line["status"] for line in lines} == {"succeeded"}
    assert Counter(line["route"] for line in lines)["b"] >= 90
    calls = second.calls()
    assert [call for call in calls if call.status == 429] == []
    assert most_at_once(calls) <= AT_ONCE
