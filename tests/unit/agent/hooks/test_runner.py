"""The duty runs each hook that is due, and whatever a hook does is its own affair alone."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from sqlalchemy import insert, update

from docllm.agent.handlers import Context
from docllm.agent.handlers.calls.permits import FreePermits
from docllm.agent.hooks import runner as hook_runner
from docllm.agent.hooks.functions import HookOutcome, Hooks
from docllm.agent.hooks.runner import HookRunner
from docllm.agent.lease import Lease
from docllm.agent.process.containment import new_event_loop
from docllm.agent.routes import RoutePlan
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.task.hooks import HookEvent, HookState
from docllm.schemas.task.result.codec import POINTER, VALUE
from docllm.schemas.task.result.output_pointer import output_of
from tests.support.handlers import handlers_harness
from tests.support.ledger_database import GROUP, LedgerDatabase

TYPE = "invoice"
KIND = (TYPE, HookEvent.SUCCESS)
LINE = {"id": "a", "type": TYPE, "prompt": "Hello"}


class NoStore:
    """A store of results that no hook here may use."""

    async def put_new(self, uri: str, content: bytes) -> None:
        raise AssertionError(uri, len(content))

    async def get(self, uri: str, *, limit: int) -> bytes:
        raise AssertionError(uri, limit)

    async def put(self, uri: str, content: bytes) -> None:
        raise AssertionError(uri, len(content))


class Store(NoStore):
    """A store of results in memory."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = objects

    async def get(self, uri: str, *, limit: int) -> bytes:
        return self.objects[uri][:limit]

    async def put(self, uri: str, content: bytes) -> None:
        if "away" in self.objects:
            raise ObjectError(ObjectFault.OUTAGE, "the store is away")
        self.objects[uri] = content


@dataclass
class World:
    """A runner over a ledger, and the hooks that it ran."""

    ledger_db: LedgerDatabase
    lease: Lease
    store: NoStore = field(default_factory=NoStore)
    ran: list[HookOutcome] = field(default_factory=list)

    @property
    def current(self) -> Lease:
        return self.lease

    def runner(self, hook: Any = None, *, limit_s: float = 60.0) -> HookRunner:
        async def note(_context: Any, outcome: HookOutcome) -> None:
            self.ran.append(outcome)

        tools = handlers_harness().tools
        return HookRunner(
            hooks=Hooks(tools=tools, by_kind={KIND: hook or note}),
            transactions=self.ledger_db.transactions,
            clock=SystemClock(),
            group=GROUP,
            leases=self,
            plan_of=lambda _value, _run: RoutePlan("default"),
            permits_of=lambda _value, _plan, _run: FreePermits(),
            outputs=self.store,
            copies=True,
            limit_s=limit_s,
        )

    def order(self, **values: Any) -> None:
        """Order the hook of a task that succeeded."""
        batch_id = self.ledger_db.batch().id
        task = {"task_id": 1, "batch_id": batch_id, "type": TYPE, "group_name": GROUP}
        row = task | {"event": "success", "status": "succeeded", "attempts": 1} | values
        self.ledger_db.run(lambda c: c.execute(insert(tables.hook).values(**row)))

    def left(self) -> Any:
        (row,) = self.ledger_db.rows(tables.hook)
        return row


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerDatabase]:
    """One migrated ledger; `tests/contract/claims/test_hooks.py` has the SQL on every database."""
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}", timeout_s=5)
    migrations.migrate(database)
    yield LedgerDatabase(database)
    database.close()


@pytest.fixture
def world(migrated: LedgerDatabase) -> World:
    migrated.empty()
    batch = migrated.batch()
    task = {"id": 1, "batch_id": batch.id, "task_key": b"a", "digest": bytes(16), "type": TYPE}
    migrated.run(lambda c: c.execute(insert(tables.task).values(**task)))
    body = {"task_id": 1, "body": orjson.dumps(LINE)}
    migrated.run(lambda c: c.execute(insert(tables.task_input).values(**body)))
    agent_id = migrated.agent().agent_id
    return World(migrated, Lease(agent_id, SystemClock().now_s() + 1000))


def run(work: Awaitable[Any]) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)  # type: ignore[arg-type]


async def once(runner: HookRunner) -> None:
    """Run what is due once, to its end."""
    await runner.run_due()
    async with asyncio.timeout(30):
        while runner.unwritten:
            await asyncio.sleep(0)
            await runner.write_ends()


def test_a_hook_gets_the_outcome_and_is_gone_after_it(world: World) -> None:
    """The lease counts it while it runs, so that no agent leaves it behind."""
    world.order()

    run(once(world.runner()))

    ((outcome),) = world.ran
    assert (outcome.event, outcome.status, outcome.attempts) == (KIND[1], "succeeded", 1)
    assert world.ledger_db.count(tables.hook) == 0
    assert world.lease.hooks == 0


@pytest.mark.parametrize("error", [ValueError("full"), SystemExit(3), asyncio.CancelledError()])
def test_an_error_of_a_hook_is_its_own_failure(world: World, error: BaseException) -> None:
    """The hook is tried again later, and says why it failed."""

    async def hook(_context: Context, _outcome: HookOutcome) -> None:
        raise error

    world.order()
    run(once(world.runner(hook)))

    row = world.left()
    assert (row.state, row.tries, row.owner) == (HookState.WAITS, 1, 0)
    assert type(error).__name__ in row.failure


def test_a_hook_that_hangs_is_ended(world: World) -> None:
    """The hook has failed, as if it had raised."""

    async def hook(_context: Context, _outcome: HookOutcome) -> None:
        await asyncio.get_running_loop().create_future()

    world.order()
    run(once(world.runner(hook, limit_s=0.2)))

    assert world.left().failure == "it did not end in time"


def test_a_call_of_a_hook_is_booked(world: World) -> None:
    """The call is paid for, whatever becomes of the hook afterwards."""

    async def hook(context: Context, _outcome: HookOutcome) -> None:
        await context.complete({"model": "m", "messages": []})
        raise ValueError("full")

    world.order(route="fallback")
    run(once(world.runner(hook)))

    (row,) = world.ledger_db.rows(tables.task_attempt)
    assert (row.task_id, row.outcome, row.tokens_in) == (1, "hook", 10)
    assert row.route == "default", "not on the route of the attempt before it"
    assert world.left().tries == 1


def test_no_call_is_made_without_a_lease(world: World) -> None:
    """The hook has not failed: another agent may have it by now."""

    async def hook(context: Context, _outcome: HookOutcome) -> None:
        world.lease.is_lost = True
        await context.complete({"model": "m", "messages": []})

    world.order()
    run(once(world.runner(hook)))

    row = world.left()
    assert (row.state, row.tries, row.owner) == (HookState.WAITS, 0, 0)


def test_a_late_agent_leases_nothing(world: World) -> None:
    """A late agent's lease may be lost, so nobody would know who runs the hook."""
    world.lease.was_late = True
    world.order()

    run(once(world.runner()))

    assert (world.ran, world.left().state) == ([], HookState.WAITS)


def test_a_hook_over_which_agents_were_lost_runs_alone(world: World) -> None:
    """If it kills this agent too, no other hook is charged for it."""
    beside: list[int] = []

    async def hook(_context: Context, _outcome: HookOutcome) -> None:
        beside.append(world.lease.hooks)
        await asyncio.sleep(0.02)

    runner = world.runner(hook)
    for losses in (0, 3, 0, 4):
        world.order(losses=losses)

    async def work() -> None:
        async with asyncio.timeout(30):
            while world.ledger_db.count(tables.hook):
                # A second suspect that was given back is due again at once.
                world.ledger_db.ago(tables.hook.c.due_at, 1)
                await once(runner)

    run(work())

    assert sorted(beside) == [1, 1, 2, 2]


def test_a_group_is_busy_while_a_hook_waits_for_another_that_runs_alone(world: World) -> None:
    """A bug let `--until-done` end before the second of two hooks over which agents were lost."""
    runner = world.runner()
    for losses in (3, 4):
        world.order(losses=losses)

    async def work() -> None:
        while len(world.ran) < 1:
            await once(runner)
        assert world.ledger_db.count(tables.hook) == 1
        assert await runner.busy()

    run(work())


def test_a_drain_runs_what_is_due(world: World) -> None:
    """A group has work left until its due hooks have run."""
    world.order()
    runner = world.runner()

    async def work() -> None:
        assert await runner.busy()
        duty = asyncio.create_task(runner.run())
        await runner.drain(30.0, hurry=lambda: False)
        duty.cancel()
        assert not await runner.busy()

    run(work())

    assert len(world.ran) == 1
    assert world.ledger_db.count(tables.hook) == 0


def test_a_hurry_gives_a_running_hook_back(world: World) -> None:
    """The hook is due at once, for any agent, and has not failed."""
    begun = asyncio.Event()

    async def hook(_context: Context, _outcome: HookOutcome) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    world.order()
    runner = world.runner(hook)

    async def work() -> None:
        await runner.run_due()
        await begun.wait()
        await runner.drain(30.0, hurry=lambda: True)

    run(work())

    row = world.left()
    assert (row.state, row.tries, row.owner) == (HookState.WAITS, 0, 0)


def test_a_hook_that_ignores_its_cancel_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The drain goes on without it."""
    monkeypatch.setattr(hook_runner, "CANCEL_S", 0.01)
    begun, over = asyncio.Event(), asyncio.Event()

    async def hook(_context: Context, _outcome: HookOutcome) -> None:
        begun.set()
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    world.order()
    runner = world.runner(hook)

    async def work() -> None:
        await runner.run_due()
        await begun.wait()
        await runner.drain(30.0, hurry=lambda: True)
        assert runner.unwritten == 1
        over.set()
        await once(runner)

    run(work())

    assert [text for text in caplog.messages if "cancelled" in text] == [
        "hook on_success of task 1 goes on though it was cancelled; an agent runs it again"
    ]


def test_a_drain_starts_no_hook_that_waits_to_run_alone(world: World) -> None:
    """The hook beside which it waits is ended, and both are given back."""
    begun = asyncio.Event()

    async def hook(_context: Context, _outcome: HookOutcome) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    for losses in (0, 3):
        world.order(losses=losses)
    runner = world.runner(hook)

    async def work() -> None:
        await runner.run_due()
        await begun.wait()
        await runner.drain(30.0, hurry=lambda: True)
        await runner.run_due()
        assert world.lease.hooks == 0

    run(work())

    assert [(row.state, row.owner) for row in world.ledger_db.rows(tables.hook)] == [
        (HookState.WAITS, 0)
    ] * 2


def test_a_hook_that_waits_to_run_alone_has_its_whole_time(world: World) -> None:
    """The time of the hooks before it is not its own."""

    async def hook(_context: Context, outcome: HookOutcome) -> None:
        if outcome.attempts == 1:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0.05)
        world.ran.append(outcome)

    for losses in (0, 3):
        world.order(losses=losses, attempts=1 + losses)
    runner = world.runner(hook, limit_s=0.5)

    async def work() -> None:
        await once(runner)
        await once(runner)

    run(work())

    assert [outcome.attempts for outcome in world.ran] == [4]
    assert world.left().failure == "it did not end in time"


def test_an_agent_names_its_hooks(world: World) -> None:
    """Programs without the agent's settings order the hooks that it names."""
    run(world.runner().store_kinds())

    (row,) = world.ledger_db.rows(tables.hook_type)
    assert (row.group_name, row.type, row.event) == (GROUP, TYPE, "success")


def settled(world: World, *, raw: bool, erased: bool = False) -> bytes:
    """Let the task name an object, and its result lie in one of its own; return that."""
    line = LINE | {"output_uri": "s3://b/own", "output_raw": raw}
    body = orjson.dumps(line)
    world.ledger_db.run(lambda c: c.execute(update(tables.task_input).values(body=body)))
    output = output_of(key="a", batch="b", codec=VALUE, stored=orjson.dumps("Fine. \u00e9"))
    result = {"task_id": 1, "owner": 1, "codec": POINTER, "body": output.pointer("new").stored()}
    if not erased:
        world.ledger_db.run(lambda c: c.execute(insert(tables.task_result).values(**result)))
    world.order(type="", event="output")
    return output.content


@pytest.mark.parametrize("raw", [False, True])
def test_a_result_is_copied_to_the_object_that_its_line_names(world: World, *, raw: bool) -> None:
    """Over whatever is there; with `output_raw` it is the answer alone."""
    content = settled(world, raw=raw)
    world.store = store = Store(new=content)
    store.objects["s3://b/own"] = b"older"

    run(once(world.runner()))

    wanted = "Fine. \u00e9".encode() if raw else content
    assert store.objects == {"new": content, "s3://b/own": wanted}
    assert world.ledger_db.rows(tables.hook) == []
    assert world.ran == []


def test_a_copy_that_fails_is_tried_again(world: World) -> None:
    """As a hook that fails, with the reason in its row."""
    world.store = Store(new=settled(world, raw=False), away=b"")

    run(once(world.runner()))

    row = world.left()
    assert (row.state, row.tries) == (HookState.WAITS, 1)
    assert row.failure == "the result of its task cannot be read or copied: the store is away"


def test_an_object_that_is_not_what_was_settled_is_not_copied(world: World) -> None:
    """Other bytes never get the name that the line gave."""
    world.store = store = Store(new=settled(world, raw=False).replace(b"Fine", b"Fake"))

    run(once(world.runner()))

    assert "its SHA-256 is another one" in world.left().failure
    assert list(store.objects) == ["new"]


def test_a_result_that_was_erased_is_not_copied(world: World) -> None:
    """Nothing is left to be done."""
    settled(world, raw=False, erased=True)

    run(once(world.runner()))

    assert world.ledger_db.rows(tables.hook) == []
