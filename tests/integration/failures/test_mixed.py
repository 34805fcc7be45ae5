"""All at once: transient and permanent errors, oversized answers, garbage, dying agents."""

import random
import signal
from collections import Counter
from http import HTTPStatus

import orjson

from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment, seeded, task_line
from tests.integration.support.programs import Program, pause
from tests.invariants.evidence import Call, Task

FAULTS = "500=0.1,503=0.06,cut=0.04,400=0.02,huge=0.01"  # a fifth of the faults pass, 3 % stay
LOADED, SENT, GARBAGE, KILLS = 800, 400, 12, 5
MAX_ATTEMPTS = 3
HUGE_BYTES = 16 << 20
AGENTS, SLOTS = 3, "6"


def test_every_task_ends_once_and_for_its_reason(deployment: Deployment) -> None:
    """Each task ends as its last call requires, and each death has its row and dead letter.

    Garbage is quarantined, one row for each record.
    """
    chance = seeded()
    deployment.use_tiers("1s", "2s", max_attempts=MAX_ATTEMPTS)
    deployment.llm(
        "--latency", "0.3-0.5", "--faults", FAULTS, "--seed", str(chance.randrange(1000))
    )
    deployment.load(LOADED)
    _send(deployment, chance)
    agents = [deployment.agent("--slots", SLOTS) for _ in range(AGENTS)]

    for _ in range(KILLS):
        _kill_one(deployment, agents, chance)
    left = deployment.ledger.open()
    for agent in agents:
        agent.signal(signal.SIGTERM)
    assert {agent.wait() for agent in agents} <= {
        0,
        -signal.SIGTERM,
    }  # one may just have been started
    deployment.until_done("--slots", "40", agents=2)

    run = deployment.evidence()
    calls: dict[str, list[Call]] = {}
    for call in sorted(run.calls, key=lambda call: call.start_s):
        calls.setdefault(call.name, []).append(call)
    deaths = Counter(
        (task.death.disposition, task.death.error_class) for task in run.tasks if task.death
    )
    print(  # noqa: T201
        f"{len(run.calls)} calls for {len(run.tasks)} tasks, {left} were left after {KILLS} "
        f"kills; {dict(deaths)}"
    )
    assert left
    ended = [task for task in run.tasks if not (gave_up(task) and task.name in deployment.given_up)]
    assert [
        (task, calls[task.name][-1]) for task in ended if not fits(task, calls[task.name][-1])
    ] == []
    assert {("permanent", "BAD_REQUEST"), ("permanent", "REPLY_TOO_LARGE")} <= deaths.keys()
    assert len(run.quarantined) == GARBAGE
    assert {row.disposition for row in deployment.ledger.quarantined()} == {"undecodable"}
    assert checker.violations(run) == []


def _send(deployment: Deployment, chance: random.Random) -> None:
    """Write task lines to the inbox, with garbage among them.

    They are not those of the loaded tasks: the bare line of a dead task is its letter.
    """
    inbox = deployment.topics.name("inbox")
    numbers = range(LOADED, LOADED + SENT)
    lines = [orjson.dumps(task_line(number)) for number in numbers]
    garbage = [b"\xff\x00 %d" % number for number in range(GARBAGE)]
    values = chance.sample([*lines, *garbage], len(lines) + len(garbage))
    if not deployment.kafka:
        deployment.producer("topics", "apply")
    deployment.bus.write([Outgoing(inbox, None, value, []) for value in values])
    deployment.expect(f"{deployment.group}-direct", (f"t{number}" for number in numbers))


def _kill_one(deployment: Deployment, agents: list[Program], chance: random.Random) -> None:
    """Kill an agent that works.

    It may be any agent: a new one may get its partitions only after the others have done the work.
    """
    pause(chance.uniform(0.5, 2))
    victims = chance.sample(agents, AGENTS)

    def killed() -> Program | None:
        return next(
            (
                victim
                for victim in victims
                if deployment.ledger.claims_of(victim.pid) and deployment.kill(victim)
            ),
            None,
        )

    deployment.until(killed, "an agent to work and to be killed")
    agents[:] = [agent if agent.running else deployment.agent("--slots", SLOTS) for agent in agents]


def gave_up(task: Task) -> bool:
    """Return whether a task ended because of the agents lost over it."""
    return task.death is not None and task.death.disposition == "worker_lost"


def fits(task: Task, last: Call) -> bool:
    """Return whether a task ended as the server's answer to its last call requires."""
    if last.status == HTTPStatus.OK and last.sent_bytes <= HUGE_BYTES:
        return task.status == Status.SUCCEEDED
    return task.death is not None and (task.death.disposition, task.death.error_class) == reason(
        last
    )


def reason(last: Call) -> tuple[str, str]:
    match last.status:
        case HTTPStatus.OK:
            return "permanent", "REPLY_TOO_LARGE"
        case 400:
            return "permanent", "BAD_REQUEST"
        case 0:
            return "exhausted", "AMBIGUOUS"
    return "exhausted", "SERVER"
