"""The duty that runs hooks: it leases due hooks, runs them, and stores their results.

A hook needs no slot. Its calls wait for their permits like all other calls, and are not made on a
closed route. A hook's row is deleted only after the hook has run, so a lost agent loses no hook.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import orjson

from docllm.agent.handlers.calls.permits import CallPermits
from docllm.agent.handlers.handler_run import HandlerRun
from docllm.agent.hooks.done_batches import DoneBatches
from docllm.agent.hooks.functions import BatchEnd, HookOutcome, Hooks, NoLocks
from docllm.agent.lease import Lease, Leases
from docllm.agent.ledger import batch_ends, hook_runs
from docllm.agent.ledger.hook_runs import HookEnd, HookInput, HookReturn, HookRun
from docllm.agent.maintenance.duty import Duty
from docllm.agent.ports.outcome import Spent
from docllm.agent.process.containment import cancel
from docllm.agent.routes import RoutePlan
from docllm.producer.ledger import hook_orders
from docllm.schemas.codes import Code
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.write_once import OutputStore
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.hooks import COPY, HookEvent, HookKind
from docllm.schemas.task.line.parsing import parse_again
from docllm.schemas.task.result.answer import answer_value
from docllm.schemas.task.result.output_pointer import OutputAlteredError
from docllm.schemas.text.wording import number_of, one_line

CHECK_EVERY_S = 1.0
FREE_EVERY_S = 5.0
RENEW_EVERY_S = 3600.0
MAX_RUNNING = 16  # hooks that run at once in one agent
LEASE_MARGIN_S = 60.0
RELEASE_S = 5.0  # delay before a released hook is due again
CANCEL_S = 2.0
# Number of lost agents from which on a hook runs alone, without other hooks.
HOOK_ALONE_LOSSES = 2
_RELEASED = HookReturn(released=True)

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class HookRunner:
    """Runs the hooks of the types that this agent's settings name.

    `plan_of` returns the routes for a hook's calls, the first of which they take, for a line and a
    run. `permits_of` returns the permits of these calls, for a line, the routes and a run.
    `outputs` has results outside the ledger; with `copies`, this agent copies them to the objects
    that lines name. `limit_s` is the time of one hook. `batches` finds the batches that are done,
    if they have a hook.
    """

    hooks: Hooks
    transactions: Transactions
    clock: Clock
    group: str
    leases: Leases
    plan_of: Callable[[bytes, HookRun], RoutePlan]
    permits_of: Callable[[bytes, RoutePlan, HookRun], CallPermits]
    outputs: OutputStore
    copies: bool = False
    limit_s: float
    batches: DoneBatches | None = None
    max_running: int = MAX_RUNNING
    _running: dict[asyncio.Task[None], HookRun] = field(default_factory=dict, init=False)
    # Each with the agent that leased the hook.
    _ended: list[tuple[int, HookEnd]] = field(default_factory=list, init=False)
    _suspect: tuple[Lease, HookRun] | None = field(default=None, init=False)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _draining: bool = field(default=False, init=False)
    _stored_kinds: frozenset[HookKind] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        duty, batches = partial(Duty, clock=self.clock), self.batches
        self._duties = (
            *(
                ()
                if batches is None
                else (duty(name="finding batches that are done", work=batches.find_in_turn),)
            ),
            duty(name="running hooks", work=self.run_due),
            duty(
                name="freeing the hooks of agents that are gone",
                work=self.free_lost,
                every_s=FREE_EVERY_S,
            ),
            duty(name="naming this agent's hooks", work=self.renew_kinds, every_s=RENEW_EVERY_S),
        )

    @property
    def kinds(self) -> frozenset[HookKind]:
        """The types and events that have a hook here."""
        return self.hooks.kinds | ({COPY} if self.copies else frozenset())

    @property
    def unwritten(self) -> int:
        """How many hooks run, or have run and their ends are not stored."""
        return len(self._running) + len(self._ended)

    async def run(self) -> None:
        """Run hooks until cancelled; do nothing if the settings name no hooks."""
        while True:
            for duty in self._duties:
                await duty.try_once()
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(CHECK_EVERY_S):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def run_due(self) -> None:
        """Write the ends of hooks that have run, and start the hooks that are due."""
        await self.write_ends()
        if self.hooks.kinds - self._stored_kinds:
            await self.store_kinds()
        lease, room = self.leases.current, self.max_running - len(self._running)
        may_lease = not self._draining and self.kinds and lease.may_claim(self.clock.now_s())
        if not may_lease or self._suspect or room <= 0:
            self._start_suspect()
            return
        ids = await self.transactions.read(hook_runs.due_ids, self.group, self.kinds, room)
        if not ids:
            return
        until_s = self.clock.now_s() + self.limit_s
        # Twice the limit, because a hook that runs alone may first wait for the others.
        leased = await self.transactions.write(
            hook_runs.lease_due, ids, lease.agent_id, 2 * self.limit_s + LEASE_MARGIN_S
        )
        crash.reach("hook.leased")
        self._start_all(lease, leased, until_s)

    def _start_all(self, lease: Lease, leased: Sequence[HookRun], until_s: float) -> None:
        """Start hooks; a hook over which agents were lost waits until no other hook runs."""
        for run in leased:
            if self._draining or (run.losses >= HOOK_ALONE_LOSSES and self._suspect):
                self._end(lease, _end_of(run, _RELEASED))
            elif run.losses >= HOOK_ALONE_LOSSES:
                self._suspect = lease, run
            else:
                self._start(lease, run, until_s)
        self._start_suspect()

    def _start_suspect(self) -> None:
        if self._suspect and not self._running and not self._draining:
            self._start(*self._suspect, self.clock.now_s() + self.limit_s)

    def _start(self, lease: Lease, run: HookRun, until_s: float) -> None:
        lease.hooks += 1
        task = asyncio.get_running_loop().create_task(self._work(lease, run, until_s))
        self._running[task] = run
        task.add_done_callback(self._note_done)

    def _note_done(self, task: "asyncio.Task[None]") -> None:
        run = self._running.pop(task)
        if self._suspect and self._suspect[1] is run:
            self._suspect = None
        self._wake.set()

    async def _work(self, lease: Lease, run: HookRun, until_s: float) -> None:
        end = HookEnd(run, _RELEASED)
        spent = Spent()

        def note_spent(paid: Spent) -> None:
            nonlocal spent
            spent = paid

        try:
            if run.event is HookEvent.BATCH_DONE:
                end = await self._run_of_batch(run, until_s)
            elif run.event is HookEvent.OUTPUT:
                end = await self._copy(run)
            else:
                end = await self._run_of_task(lease, run, until_s, note_spent)
        except asyncio.CancelledError:
            end = HookEnd(run, HookReturn(spent, released=True))
            raise
        except (ObjectError, OutputAlteredError) as error:
            failure = one_line(f"the result of its task cannot be read or copied: {error}")
            end = HookEnd(run, HookReturn(failure=failure))
        except Exception as error:
            log.exception(
                "hook %s ended in a bug",
                run.title,
                extra={"code": Code.INTERNAL_ERROR},
            )
            end = HookEnd(run, HookReturn(spent, f"INTERNAL: {type(error).__name__}"))
        finally:
            lease.hooks -= 1
            self._end(lease, end)

    async def _run_of_batch(self, run: HookRun, until_s: float) -> HookEnd:
        end = await self.transactions.read(batch_ends.read, run.batch_id, run.attempts)
        if end is None:
            return HookEnd(run, HookReturn(failure="the ledger has no such end"))
        left_s = until_s - self.clock.now_s()
        returned = await self.hooks.run_of_batch(BatchEnd(**end), left_s)
        crash.reach("hook.batch_told")
        return _end_of(run, returned)

    async def _run_of_task(
        self, lease: Lease, run: HookRun, until_s: float, note_spent: Callable[[Spent], None]
    ) -> HookEnd:
        hook_input = await self.transactions.read(hook_runs.read_input, run)
        if hook_input is None:
            return HookEnd(run, HookReturn(failure="the ledger has no input for its task"))
        hook_input = await self._with_output(hook_input)
        plan = self.plan_of(hook_input.value, run)
        run = replace(run, route=plan.first)
        returned = await self._run(lease, run, plan, hook_input, until_s, note_spent)
        crash.reach("hook.ran")
        return _end_of(run, returned)

    async def _with_output(self, hook_input: HookInput) -> HookInput:
        """Return the input of a hook with its result, wherever that is kept."""
        if hook_input.pointer is None:
            return hook_input
        pointer = hook_input.pointer
        content = await self.outputs.get(pointer.uri, limit=pointer.size)
        body = pointer.result_in(content)
        return HookInput(hook_input.value, answer_value(hook_input.value, pointer.codec, body))

    async def _copy(self, run: HookRun) -> HookEnd:
        """Copy a result to the object that its line names; its own object is never changed.

        Only the result that was settled gets there, however often this runs. Without input or
        pointer the result is gone, so there is nothing to copy.
        """
        hook_input = await self.transactions.read(hook_runs.read_input, run)
        pointer = None if hook_input is None else hook_input.pointer
        if hook_input is None or pointer is None:
            return HookEnd(run, HookReturn())
        task = parse_again(hook_input.value)
        content = await self.outputs.get(pointer.uri, limit=pointer.size)
        body = pointer.result_in(content)
        if task.output_raw or run.output_raw:
            answer = answer_value(hook_input.value, pointer.codec, body)
            content = answer.encode() if isinstance(answer, str) else orjson.dumps(answer)
        await self.outputs.put(task.output_uri or "", content)
        crash.reach("hook.copied")
        return HookEnd(run, HookReturn())

    async def _run(
        self,
        lease: Lease,
        run: HookRun,
        plan: RoutePlan,
        hook_input: HookInput,
        until_s: float,
        note_spent: Callable[[Spent], None],
    ) -> HookReturn:
        handler_run = HandlerRun(
            task_id=run.task_id,
            batch=run.batch,
            value=hook_input.value,
            counted_before=max(0, run.attempts - 1),
            max_attempts=run.max_attempts,
            snoozes=0,
            left_s=until_s - self.clock.now_s(),
            route=run.route,
            is_on_fallback=run.route != plan.route,
            limit_s=None,
            refused_alone=False,
            may_call=lambda: lease.may_call(self.clock.now_s()),
            note_spent=note_spent,
            call_permits=self.permits_of(hook_input.value, plan, run),
            locks=NoLocks(),
        )
        return await self.hooks.run((run.type, run.event), handler_run, _outcome(run, hook_input))

    def _end(self, lease: Lease, end: HookEnd) -> None:
        self._ended.append((lease.agent_id, end))

    async def write_ends(self) -> None:
        """Write the ends of hooks that have run.

        Several callers may do so at once.
        """
        async with self._writing:
            while self._ended:
                agent_id = self._ended[0][0]
                page = [end for by, end in self._ended if by == agent_id]
                given_up = await self.transactions.write(hook_runs.finish, agent_id, page)
                crash.reach("hook.written")
                written = set(map(id, page))
                self._ended = [item for item in self._ended if id(item[1]) not in written]
                if given_up:
                    log.warning(
                        "%s given up after %d tries each; see: docllm status --group %s",
                        number_of(given_up, "hook"),
                        hook_runs.MAX_TRIES,
                        self.group,
                        extra={"code": Code.HOOKS_GIVEN_UP},
                    )

    async def free_lost(self) -> None:
        """Let the hooks of agents that are gone run again."""
        if not self.kinds:
            return
        if freed := await self.transactions.write(hook_runs.end_lost_leases, self.group):
            log.warning("%s of agents that are gone can run again", number_of(freed, "hook"))

    async def store_kinds(self) -> None:
        """Store which hooks the settings of this agent name."""
        kinds = self.hooks.kinds
        await self.transactions.write(hook_orders.store_names, self.group, kinds)
        self._stored_kinds = kinds

    async def renew_kinds(self) -> None:
        """Store the hooks again, because the ledger forgets them after a day."""
        if self.hooks.kinds:
            await self.store_kinds()

    async def busy(self) -> bool:
        """Return whether a hook of the group runs, or one of this agent's kinds is due soon.

        A hook that waits until another one has run alone is due again after `RELEASE_S`.
        """
        if not self.kinds:
            return False
        if self.batches is not None and await self.batches.find():
            return True
        if await self._has_work() or await self.transactions.read(
            hook_runs.any_running, self.group
        ):
            return True
        soon = await self.transactions.read(hook_runs.due_ids, self.group, self.kinds, 1, RELEASE_S)
        return bool(soon)

    async def drain(self, timeout_s: float, *, hurry: Callable[[], bool]) -> None:
        """Run due hooks for `timeout_s` at most, or until hurried; then release the others."""
        until_s = self.clock.now_s() + timeout_s
        while self.clock.now_s() < until_s and not hurry() and await self._has_work():
            await self.clock.sleep(CHECK_EVERY_S / 4)
        self._draining = True
        for task in (unfinished := list(self._running)):
            cancel(task)
        if unfinished:
            await asyncio.wait(unfinished, timeout=CANCEL_S)
        for run in self._running.values():
            log.warning(
                "hook %s goes on though it was cancelled; an agent runs it again",
                run.title,
                extra={"code": Code.HANDLER_GOES_ON},
            )
        if self._suspect:
            lease, run = self._suspect
            self._end(lease, HookEnd(run, _RELEASED))
        await self.write_ends()

    async def _has_work(self) -> bool:
        if not self.kinds:
            return False
        if self._running or self._ended or self._suspect:
            return True
        return bool(await self.transactions.read(hook_runs.due_ids, self.group, self.kinds, 1))


def _outcome(run: HookRun, hook_input: HookInput) -> HookOutcome:
    return HookOutcome(
        event=run.event,
        status=run.status,
        result=hook_input.result,
        error_class=run.error_class,
        error=run.error_text,
        disposition=run.disposition,
        attempts=run.attempts,
    )


def _end_of(run: HookRun, returned: HookReturn) -> HookEnd:
    return HookEnd(run, returned, RELEASE_S if returned.released else 0.0)
