"""The reaper: who is declared lost, when tasks are reset, and when that is reported."""

import asyncio
from typing import Any, cast

from docllm.agent.ledger.recovery import losses, reaping
from docllm.agent.ledger.recovery.reaping import LostClaim
from docllm.agent.maintenance.repair.reaper import REPEAT_S, Reaper
from docllm.agent.membership.life_locks import LifeLocks
from docllm.schemas.runtime.clock import Clock
from tests.support.doubles import double_of


class Ledger:
    """Transactions with set answers, which record the functions that they ran."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.ran: list[str] = []

    async def write(self, work: Any, *_: Any) -> Any:
        self.ran.append(work.__name__)
        return self.answers[work.__name__].pop(0)


class Setting:
    """A reaper with its clock and ledger; who it told is gone stands in `told`."""

    def __init__(self, ledger: Ledger, *, locks: Any = None) -> None:
        self.ledger = ledger
        self.now_s = 0.0
        self.told: list[frozenset[int]] = []
        self.reaper = Reaper(
            transactions=cast("Any", ledger),
            clock=double_of(Clock, now_s=lambda: self.now_s),
            group="g",
            heartbeat=cast("Any", None),
            locks=locks,
            ask_about_tasks_of=self.told.append,
        )

    def round(self) -> None:
        """Declare agents lost, reset tasks, report."""

        async def once() -> None:
            for step in (
                self.reaper.declare_lost_agents,
                self.reaper.reset,
                self.reaper.report_gone,
            ):
                await step()

        asyncio.run(once())


def declared(*gone: int) -> tuple[int, frozenset[int]]:
    return 0, frozenset(gone)


def test_tasks_are_reset_when_another_agent_is_gone_and_now_and_then() -> None:
    """A lost agent may have claimed since its tasks were reset."""
    answers = [declared(), declared(), declared(7), declared(7), declared(7)]
    ledger = Ledger(_declare_by_heartbeats=answers, orphans=[[]] * 3, overdue=[[]] * 3)
    setting = Setting(ledger)
    resets = []
    for now_s in (0.0, 1.0, 2.0, 3.0, 2.0 + REPEAT_S):
        setting.now_s = now_s
        ledger.ran.clear()
        setting.round()
        resets.append("orphans" in ledger.ran)

    assert resets == [True, False, True, False, True]
    assert setting.told == [frozenset()] * 2 + [frozenset({7})] * 3


def test_losses_are_taken_back_when_a_task_dies_of_its_own() -> None:
    page = list(range(reaping.PAGE))
    ledger = Ledger(
        _declare_by_heartbeats=[declared(7)],
        orphans=[page, [1, 2]],
        reset_orphans=[reaping.ResetTasks(reaping.PAGE, 0), reaping.ResetTasks(1, 1)],
        overdue=[[]],
        undo_losses=[losses.PAGE, 3],
    )
    setting = Setting(ledger)

    setting.round()

    assert ledger.ran[1:] == [
        *["orphans", "reset_orphans"] * 2,
        "overdue",
        "undo_losses",
        "undo_losses",
    ]


def test_resets_are_counted_by_their_cause() -> None:
    claim = LostClaim(1, "a", 7, 0, 0, "document", 0.0)
    ledger = Ledger(
        _declare_by_heartbeats=[declared(7)],
        orphans=[[1, 2]],
        reset_orphans=[reaping.ResetTasks(2, 0, [claim, claim])],
        overdue=[[3]],
        reset_overdue=[reaping.ResetTasks(1, 0, [claim])],
    )
    setting = Setting(ledger)

    setting.round()

    assert setting.reaper.resets == {"lost": 2, "overdue": 1}


def test_rows_that_cannot_be_reset_are_asked_for_once_in_a_round() -> None:
    """Another reaper has locked them, or was faster."""
    page = list(range(reaping.PAGE))
    ledger = Ledger(
        _declare_by_heartbeats=[declared(7)],
        orphans=[page],
        reset_orphans=[reaping.ResetTasks(0, 0)],
        overdue=[[]],
    )

    Setting(ledger).round()

    assert ledger.ran.count("orphans") == 1


def test_an_agent_whose_lock_is_free_is_declared_lost_at_once() -> None:
    ledger = Ledger(
        alive=[[(1, "dead"), (2, "alive"), (3, "dead too")]],
        declare_lost=[True, False],
        _declare_by_heartbeats=[declared(1)],
    )
    removed: list[int] = []
    locks = double_of(
        LifeLocks, has_process_ended=lambda agent_id: agent_id != 2, remove=removed.append
    )

    asyncio.run(Setting(ledger, locks=locks).reaper.declare_lost_agents())

    assert ledger.ran[:3] == ["alive", "declare_lost", "declare_lost"]
    assert removed == [1], "somebody else declared agent 3 lost"
