"""The duty that looks after guards.

It refreshes what this agent knows of guards, runs their looks, opens them, and calls up the tasks
that they moved.

How a guard moves from state to state: `docs/explanation/architecture.md`, "Guards".
"""

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial

from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.judge import Effect
from docllm.agent.ledger.guards import looks
from docllm.agent.ledger.guards.look_search import BEGINNING, RoutesOf, SearchPosition
from docllm.agent.maintenance.duty import Duty, repeat
from docllm.agent.ports import Clock
from docllm.agent.routes.probe_sender import ProbeSender
from docllm.producer.ledger import audit, guards
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.codes import Code
from docllm.schemas.ledger.database import Connection
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.task.guard import Guard, GuardCause

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
IDLE_S = 10.0
PROMPT_S = 60.0
# One round stays short: the most guards that it looks after, in turn, and the most pages of 500
# tasks that it calls up for each.
MAX_GUARDS, PAGES = 50, 4
TIDY_S, REMIND_S = 60.0, 60.0
MAX_NAMED = 5  # guards that one reminder names


@dataclass(slots=True, kw_only=True, eq=False)
class GuardKeeper:
    """Looks after the guards of one group.

    `routes_of` returns the routes that a task's value may take, the first one first.
    """

    transactions: Transactions
    clock: Clock
    group: str
    gate: GuardGate
    probe_s: float
    probe_sender: ProbeSender
    routes_of: RoutesOf
    own_orders: OwnOrders
    _known: dict[int, Guard] = field(default_factory=dict, init=False)
    # How far the waiting tasks of a guard were searched for those that may join its look.
    _searched: dict[int, SearchPosition] = field(default_factory=dict, init=False)
    _duties: tuple[Duty, ...] = field(init=False)
    _prompt: Duty = field(init=False)
    _prompts: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _rounds: int = field(default=0, init=False)
    _reminded_at_s: float = field(init=False)

    def __post_init__(self) -> None:
        forget = partial(self.transactions.write, looks.forget, self.group)
        self._duties = (
            Duty(name="looking after guards", work=self.keep_once, clock=self.clock),
            Duty(name="forgetting old guards", work=forget, clock=self.clock, every_s=TIDY_S),
        )
        self._prompt = Duty(name="asking a guard's route", work=self._send_prompt, clock=self.clock)
        self._reminded_at_s = self.clock.now_s()

    async def run(self) -> None:
        """Make a round each second until cancelled, and delete old guards each minute."""
        try:
            await repeat(self._duties, partial(self.clock.sleep, CHECK_EVERY_S))
        finally:
            for prompt in self._prompts:
                prompt.cancel()

    async def keep_once(self) -> None:
        """Make one pass: look after the next guards."""
        rows, look_tasks = await self.transactions.read(self._read)
        self._learn({guard.id: guard for guard in rows if guard.raised}, look_tasks)
        for guard in self._in_turn(rows):
            await (self._look_after_raised(guard) if guard.raised else self._call_up(guard))

    def _read(self, connection: Connection) -> tuple[list[Guard], set[int]]:
        """Return the rows of the guards, and the tasks that belong to looks."""
        rows = guards.read_guards(connection, self.group)
        any_look = any(guard.raised and guard.looking for guard in rows)
        return rows, guards.look_tasks(connection, self.group) if any_look else set()

    def _in_turn(self, rows: list[Guard]) -> list[Guard]:
        """Return the next guards with something to do, at most MAX_GUARDS."""
        busy = [
            guard
            for guard in rows
            if not guard.raised
            or guard.cause == GuardCause.NO_SUCCESS
            or guard.looking
            or guard.probe_due_in_s <= 0
        ]
        first = self._rounds * MAX_GUARDS % max(len(busy), 1)
        self._rounds += 1
        return (busy[first:] + busy[:first])[:MAX_GUARDS]

    def _learn(self, raised: dict[int, Guard], look_tasks: set[int]) -> None:
        for guard_id, guard in raised.items():
            before = self._known.get(guard_id)
            if before is None:
                log.warning(
                    "the guard of %s is raised; its tasks wait: %s; %s",
                    guard.title,
                    guard.reason,
                    guard.next_step_text,
                    extra={"code": Code.GUARD_RAISED},
                )
            elif (before.looking, before.look_size) != (guard.looking, guard.look_size):
                log.info("the guard of %s: %s", guard.title, guard.next_step_text)
        for guard_id, guard in self._known.items():
            if guard_id not in raised:
                log.info("the guard of %s is open, its tasks run again", guard.title)
        self._known = raised
        self._searched = {key: at for key, at in self._searched.items() if key in raised}
        self.gate.replace(raised.values(), look_tasks)
        self._remind()

    def _remind(self) -> None:
        """Log periodically which guards are raised.

        An agent with `--until-done` may wait for hours.
        """
        if self._known and self.clock.now_s() - self._reminded_at_s >= REMIND_S:
            self._reminded_at_s = self.clock.now_s()
            names = [
                f"the guard of {guard.title} ({guard.reason}; {guard.next_step_text})"
                for guard in list(self._known.values())[:MAX_NAMED]
            ]
            others = len(self._known) - len(names)
            more = f" and {others} more guards" if others else ""
            log.info("tasks still wait for %s%s", "; ".join(names), more)

    async def _look_after_raised(self, guard: Guard) -> None:
        """Open the guard or end its look, call tasks up for its look, or begin a look."""
        why = await self.transactions.write(looks.end_look_if_over, self.group, guard, self.probe_s)
        if why:
            await self._open(guard, why)
        elif guard.looking and guard.look_left and guard.probe_due_in_s <= -looks.PATIENCE_S:
            orders, self._searched[guard.id] = await self.transactions.write(
                looks.call_up_for_look,
                self.group,
                guard,
                self.routes_of,
                self._searched.get(guard.id, BEGINNING),
            )
            crash.reach("guard.called_up")
            self.own_orders.send(orders)
        elif not guard.looking and guard.probe_due_in_s <= 0:
            await self._begin(guard)

    async def _begin(self, guard: Guard) -> None:
        """Begin the look that is due; if its route must be asked first, send a prompt for it."""
        if not await self.transactions.write(looks.any_waiting, guard):
            await self._idle(guard)
        elif guard.cause == GuardCause.NO_SUCCESS or not await self.transactions.write(
            looks.begin, self.group, guard
        ):
            asked = await self.transactions.write(
                looks.take_prompt_turn, self.group, guard.route, self.probe_s
            )
            if asked:
                crash.reach("guard.turn_taken")
                prompt = asyncio.create_task(self._prompt.try_once(guard.route, asked))
                self._prompts.add(prompt)
                prompt.add_done_callback(self._prompts.discard)

    async def _idle(self, guard: Guard) -> None:
        """Open a guard that has no tasks left; while some of its tasks run, wait longer.

        Earlier failures still count, because later tasks of the key will probably fail too.
        """
        if await self.transactions.write(looks.running, guard):
            await self.transactions.write(looks.put_off, guard, IDLE_S)
        else:
            await self._open(guard, "none of its tasks is left", forgiven=False)

    async def _send_prompt(self, route: str, asked: looks.RoutePromptGuards) -> None:
        answered = (await self.probe_sender.send_prompt(route, PROMPT_S)).effect is Effect.UP
        if answered:
            await self.transactions.write(looks.route_answered, route)
            crash.reach("guard.answered")
        else:
            log.warning(
                "route %s does not answer a prompt; it is asked again in %.0f s",
                route,
                self.probe_s,
                extra={"code": Code.GUARD_RAISED},
            )
        await self.transactions.write(looks.begin_prompted, asked, answered=answered)

    async def _open(self, guard: Guard, why: str, *, forgiven: bool = True) -> None:
        await self.transactions.write(guards.open_one, guard, audit.AGENT, why, forgiven=forgiven)
        crash.reach("guard.opened")

    async def _call_up(self, guard: Guard) -> None:
        for _ in range(PAGES):
            orders = await self.transactions.write(looks.call_up_moved, self.group, guard)
            if not orders:
                return
            crash.reach("guard.called_up")
            self.own_orders.send(orders)
