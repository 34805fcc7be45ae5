"""An idle agent says why nothing moves, but not all the time."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.progress import WARN_S, Progress, why_still
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.reporting.views import CHECK_EVERY_S, LINE_S, DeadExample, Note, from_line
from docllm.producer.ledger.dead_letters import error_groups
from docllm.producer.ledger.status import progress
from docllm.producer.ledger.status.progress import Totals, Waiting
from docllm.schemas.agent_report import AgentReport, CallReport, Reason
from docllm.schemas.codes import Code
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.task.guard import Guard, GuardCause
from tests.support.doubles import double_of, stand_in

HOUR_S = 3600
TURNS = 10  # within which everybody sleeps again
NOTHING = Waiting()


class Hour:
    """A clock that goes on when everybody sleeps; the hour ends with a cancellation."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self._due: list[float] = []

    async def sleep(self, seconds: float) -> None:
        due_s = self.passed_s + seconds
        self._due.append(due_s)
        while self.passed_s < due_s:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if min(self._due) == due_s:
                self.passed_s = max(self.passed_s, due_s)
        self._due.remove(due_s)
        if self.passed_s > HOUR_S:
            raise asyncio.CancelledError

    def now_s(self) -> float:
        return self.passed_s

    def utc_s(self) -> float:
        return self.passed_s


class Ledger:
    """A ledger that answers with these totals, one for each look, then with the last."""

    def __init__(self, *totals: Totals, waiting: Waiting = NOTHING) -> None:
        self._totals = list(totals)
        self._waiting = waiting
        self.group = "docs"

    async def read(self, query: Callable[..., object], *_arguments: object) -> object:
        if query is progress.waiting:
            return self._waiting
        if query is error_groups.listed:
            return [letter("SERVER"), letter("TOO_LONG")]
        return self._totals.pop(0) if len(self._totals) > 1 else self._totals[0]


def letter(error_class: str) -> error_groups.ErrorGroup:
    """Return a group of dead letters with an example."""
    example = error_groups.Example("a", "b", error_class, f"{error_class} happened")
    return error_groups.ErrorGroup("f", "permanent", 1, 1, NEVER_TIME, NEVER_TIME, example)


def progress_of(
    *totals: Totals,
    clock: "Hour | None" = None,
    reasons: tuple[Reason, ...] = (),
    waiting: Waiting = NOTHING,
    deaths: Callable[[], list[str]] = list,
    retries: list[str] | None = None,
    tell: Callable[[bytes], None] | None = None,
    first: bool = True,
    succeeded: int = 0,
) -> Progress:
    """Return the progress of an agent with these reasons, without a terminal."""
    clock = clock or Hour()
    latest = LatestReport(clock=clock)
    latest.put(AgentReport(reasons=reasons))
    counts = double_of(
        Counts,
        death_news=lambda _group: deaths(),
        retry_news=lambda _now_s, _group: [retries.pop(0)] if retries else [],
        adds_to=lambda **ends: ends["succeeded"] != succeeded,
        summary=lambda: f"{succeeded} succeeded",
    )
    return Progress(
        transactions=stand_in(Transactions, Ledger(*totals or (Totals(),), waiting=waiting)),
        group="g",
        clock=clock,
        counts=counts,
        latest=latest,
        own=lambda: 1,
        tell=tell,
        first=first,
    )


def logged(progress: Progress, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what is logged in an hour."""
    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        asyncio.run(progress.run())
    return caplog.messages


def warnings(
    reasons: tuple[Reason, ...],
    caplog: pytest.LogCaptureFixture,
    deaths: Callable[[], list[str]] = list,
) -> list[str]:
    """Return the warnings of an agent with these reasons in an hour."""
    return logged(progress_of(reasons=reasons, deaths=deaths), caplog)


def test_the_reason_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """While a route waits, the log says so once a minute."""
    waits = Reason(Code.ROUTE_PAUSED, "default", "RATE", "429", seconds=20.0)
    messages = warnings((waits,), caplog)

    assert set(messages) == {"route default waits 20 s: RATE: 429"}
    assert 1 < len(messages) <= HOUR_S / WARN_S + 1


@pytest.mark.parametrize("open_tasks", [0, 1])
def test_an_unknown_type_is_logged_while_a_task_may_have_it(
    caplog: pytest.LogCaptureFixture, open_tasks: int
) -> None:
    """An agent learns late that the last task of a type was cancelled; the totals know at once."""
    unknown = Reason(Code.TYPE_UNKNOWN, "invoice")
    progress = progress_of(Totals(open=open_tasks), reasons=(unknown,))
    asyncio.run(progress.begin())

    messages = logged(progress, caplog)

    assert any("tasks of type invoice wait" in text for text in messages) == bool(open_tasks)


def test_nothing_is_logged_while_no_task_waits(caplog: pytest.LogCaptureFixture) -> None:
    """An agent that works logs no warning."""
    assert warnings((), caplog) == []


def test_deaths_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Errors that kill tasks are logged once a minute, and not only at the end."""
    news = [["2 dead tasks of class BAD_REQUEST"], [], ["1 dead task of class TOO_LONG"]]

    messages = warnings((), caplog, lambda: news.pop(0) if news else [])

    assert messages == ["2 dead tasks of class BAD_REQUEST", "1 dead task of class TOO_LONG"]


def test_progress_is_logged_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    """While there is work, nobody waits for longer; then the log is silent."""
    steps = [Totals(open=600 - n, succeeded=n) for n in range(601)]

    lines = [line for line in logged(progress_of(*steps), caplog) if "done" in line]

    assert len(lines) > 600 * CHECK_EVERY_S / LINE_S - 2
    assert "of 600 tasks done, 0." in lines[0]
    assert lines[-1].startswith("600 of 600 tasks done")


def test_what_stands_still_says_why_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Silence is never longer than a minute while work waits."""
    waiting = Waiting(retrying=2, due_s=500.0)

    messages = logged(progress_of(Totals(open=2), waiting=waiting), caplog)

    still = [message for message in messages if message.startswith("nothing has moved for 30 s")]
    assert still == [
        "nothing has moved for 30 s: 2 tasks wait for another attempt, the first is due in 500 s"
    ]
    assert sum("nothing has moved" in message for message in messages) > HOUR_S / WARN_S


def test_only_the_first_of_several_agents_speaks_for_all(caplog: pytest.LogCaptureFixture) -> None:
    """The other agents say what their own routes wait for, and nothing twice."""
    waits = Reason(Code.ROUTE_PAUSED, "default", "RATE", "429", seconds=20.0)

    messages = logged(progress_of(Totals(open=2), reasons=(waits,), first=False), caplog)

    assert set(messages) == {"route default waits 20 s: RATE: 429"}


def test_the_end_of_a_stop_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A person sees that work goes on."""
    clock = Hour()
    progress = progress_of(clock=clock)
    stopped = AgentReport(reasons=(Reason(Code.ROUTE_STOPPED, "r", "SERVER", "503"),))
    reports = [stopped, stopped, AgentReport()]
    progress.latest = double_of(
        LatestReport, get=lambda: reports.pop(0) if len(reports) > 1 else reports[0]
    )

    assert logged(progress, caplog) == [
        "route r tries one call: SERVER: 503",
        "work goes on: no route or topic waits",
    ]


def test_a_limit_that_is_used_up_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A limit is used up and free again all the time, so its end is no news either."""
    progress = progress_of(clock=Hour())
    limited = AgentReport(
        reasons=(Reason(Code.ROUTE_LIMITED, "r", text="rpm", count=600, agents=2),)
    )
    reports = [limited, limited, AgentReport()]
    progress.latest = double_of(
        LatestReport, get=lambda: reports.pop(0) if len(reports) > 1 else reports[0]
    )

    assert logged(progress, caplog) == ["route r waits for its rpm: 600 per minute, 2 agents"]
    assert caplog.records[0].levelno == logging.INFO


END = (
    Totals(open=3, dead=5, dead_by_class={"SERVER": 5}),
    Totals(succeeded=1, dead=7, dead_by_class={"SERVER": 6, "TOO_LONG": 1}),
)


async def notes(*, dead_lately: int) -> list[Note]:
    return [Note(f"{dead_lately} died lately", Code.TASKS_DEAD)]


def test_the_end_of_a_run_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Each class of dead tasks has an example, and the last one the command that shows more."""

    async def run() -> None:
        progress = progress_of(*END)
        await progress.begin()
        await progress.log_done(notes)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())

    more = "more: docllm dead list --group g"
    assert caplog.messages == [
        "1 task dead with SERVER, for example task a of batch b: SERVER happened",
        f"1 task dead with TOO_LONG, for example task a of batch b: TOO_LONG happened; {more}",
        "2 died lately",
        "done: 3 tasks in 0:00:00: 1 succeeded, 2 dead",
    ]


@pytest.mark.parametrize("own", [30, 10])
def test_a_run_that_is_ended_says_what_is_left(caplog: pytest.LogCaptureFixture, own: int) -> None:
    """After Ctrl-C a person knows how many tasks remain, and that nothing is lost.

    What this agent did is said only if others did the rest.
    """

    async def run() -> None:
        progress = progress_of(Totals(open=60), Totals(open=30, succeeded=30), succeeded=own)
        await progress.begin()
        await progress.log_stopped()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())

    *more, line = caplog.messages
    assert more == ([] if own == 30 else ["this agent: 10 succeeded"])
    assert line.startswith("ended with 30 of 60 tasks not done, which any agent goes on with")


async def test_a_child_lets_its_parent_tell_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The parent gets the totals, an example of each class, and the notes."""
    told: list[bytes] = []
    progress = progress_of(*END, tell=told.append)
    await progress.begin()
    await progress.log_done(notes)

    assert list(map(from_line, told)) == [
        *END,
        DeadExample("SERVER", "task a of batch b: SERVER happened"),
        DeadExample("TOO_LONG", "task a of batch b: TOO_LONG happened"),
        Note("2 died lately", Code.TASKS_DEAD),
    ]
    assert caplog.messages == []


def test_a_failed_attempt_is_logged_before_a_task_is_dead(caplog: pytest.LogCaptureFixture) -> None:
    """With a wrong address, the log says at once why nothing succeeds."""
    messages = logged(progress_of(retries=["1 attempt failed with NETWORK"]), caplog)

    assert messages.count("1 attempt failed with NETWORK") == 1


NOW = datetime(2026, 1, 1, tzinfo=UTC)
GUARD = Guard(
    id=1,
    batch_id=1,
    batch="b",
    type="document",
    route="r",
    cause=GuardCause.NO_SUCCESS,
    reason="nothing succeeds",
    raised_at=NOW,
    probe_due_in_s=20.0,
    open_age_s=None,
    look_at=NOW,
)
STOPPED = Reason(
    Code.ROUTE_STOPPED,
    "r",
    "NETWORK",
    "refused",
    seconds=4.0,
    model="large",
    address="http://llm:8000/v1",
)
LIMITED = Reason(Code.ROUTE_LIMITED, "r", text="rpm", count=1, agents=2)
CALL = CallReport(task=1, batch="b", key="k", route="r", running_s=40.0)


@pytest.mark.parametrize(
    ("report", "waiting", "reason", "is_trouble"),
    [
        (
            AgentReport(reasons=(STOPPED,)),
            Waiting(),
            "route r (large at http://llm:8000/v1) waits 4 s: NETWORK: refused",
            True,
        ),
        (
            AgentReport(),
            Waiting(guards=(GUARD,)),
            (
                "guard of batch b, type document, route r: nothing succeeds; a prompt is sent to "
                "the route in 20 s"
            ),
            True,
        ),
        (
            AgentReport(running=2, oldest_call=CALL),
            Waiting(),
            "2 tasks run here, the oldest for 40 s: task k of batch b on route r",
            False,
        ),
        (
            AgentReport(reasons=(LIMITED,)),
            Waiting(snoozed=1, snoozed_due_s=9.6),
            (
                "route r waits for its rpm: 1 per minute, 2 agents; 1 task waits for a try after "
                "one that is not counted, the first is due in 10 s"
            ),
            False,
        ),
        (
            AgentReport(reasons=(LIMITED, STOPPED)),
            Waiting(),
            (
                "route r (large at http://llm:8000/v1) waits 4 s: NETWORK: refused; "
                "route r waits for its rpm: 1 per minute, 2 agents"
            ),
            True,
        ),
        (
            AgentReport(),
            Waiting(running={8: 1, 7: 5, 9: 2}, names={9: "other:1"}),
            "3 tasks run elsewhere: agent 8, which is lost, other:1",
            False,
        ),
        (
            AgentReport(),
            Waiting(retrying=1, due_s=12.4, half_loaded=("b",)),
            (
                "1 task waits for another attempt, the first is due in 12 s; batch b: its load "
                "has not ended; if none is running, start the same load again for the rest"
            ),
            True,
        ),
        (
            AgentReport(lag={"tasks": 6}),
            Waiting(snoozed=2, snoozed_due_s=9.6),
            "2 tasks wait for a try after one that is not counted, the first is due in 10 s",
            True,
        ),
        (None, Waiting(orders=2), "2 orders wait to be published", True),
        (AgentReport(lag={"tasks": 3}), Waiting(), "3 records to be read", True),
        (None, Waiting(), "tasks wait until their records arrive", True),
    ],
)
def test_every_wait_has_its_sentence(
    report: AgentReport | None,
    waiting: Waiting,
    reason: str,
    is_trouble: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """The reason is trouble, unless calls only take their time or keep a limit."""
    assert why_still(report, waiting, group="g", own=7) == (reason, is_trouble)
