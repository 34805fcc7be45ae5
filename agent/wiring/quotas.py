"""Builds the duties that keep an agent within the limits that agents share."""

from collections.abc import Sequence
from functools import partial

from docllm.agent.dispatch.waiting_calls import WaitingCalls
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.inflight.partition_share import PartitionShare
from docllm.agent.maintenance.duty import Duty, DutyLoop
from docllm.agent.maintenance.waits.day_counter import EVERY_S as COUNT_EVERY_S
from docllm.agent.maintenance.waits.day_counter import count_day
from docllm.agent.ports import Clock
from docllm.agent.quota.share import ShareGrantStore
from docllm.agent.quota.sync import QuotaSync
from docllm.agent.wiring.parts import AgentParts

CHECK_EVERY_S = 1.0  # how often it is checked whether a limit has been set


def make_quota_duties(made: AgentParts) -> Sequence[DutyLoop]:
    """Return the duties that ask for grants; none where no limit is set, and none can follow.

    Limits may follow if the settings are read again.
    """
    choices, parts, gate = made.choices, made.choices.parts, made.quotas
    is_live = choices.rereading is not None
    if not gate.configured and not is_live:
        return ()
    share = PartitionShare(
        partitions=made.path.partitions,
        topics=tuple(parts.topics.lanes),
        describe=parts.admin.describe,
        clock=made.clock,
    )
    store = choices.grant_store
    waiting_calls = WaitingCalls(table=made.path.table, admission=made.admission, quotas=gate)

    def granted() -> None:
        made.wakeups.claim.set()
        made.uses.begin_all()

    sync = QuotaSync(
        quotas=gate.quotas,
        store=store,
        share=ShareGrantStore(partitions=share, clock=made.clock, has_no_redis=store is None),
        clock=made.clock,
        jitter=choices.jitter,
        granted=granted,
        update_waiting=waiting_calls.update,
    )
    if not gate.configured.daily and not is_live:
        return (sync.run, share.run)
    count = partial(
        count_day,
        parts.transactions,
        made.clock,
        made.group,
        lambda: gate.configured.daily,
        gate.quotas.note_used,
    )
    counting = Duty(name="counting the calls of the day", work=count, clock=made.clock)
    duties = (sync.run, share.run, counting.every(COUNT_EVERY_S))
    return [partial(_once_limited, gate, made.clock, duty) for duty in duties]


async def _once_limited(gate: QuotaGate, clock: Clock, duty: DutyLoop) -> None:
    """Run a duty from the time on when a limit is set."""
    while not gate.configured:
        await clock.sleep(CHECK_EVERY_S)
    await duty()
