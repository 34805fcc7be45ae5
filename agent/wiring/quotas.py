"""Builds the parts that keep an agent within the limits of accounts and tenants."""

from collections.abc import Callable, Sequence
from functools import partial

from docllm.agent.dispatch.waiting_calls import WaitingCalls
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.inflight.partition_share import PartitionShare
from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.maintenance.waits.day_counter import DayCounter
from docllm.agent.ports import Clock
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.grants import GrantStore
from docllm.agent.quota.quotas import Quotas
from docllm.agent.quota.share import ShareGrantStore
from docllm.agent.quota.sync import QuotaSync
from docllm.agent.wiring.record_path import Dispatch
from docllm.producer.app import Parts

CHECK_EVERY_S = 1.0  # how often it is checked whether a limit has been set


def make_quota_gate(parts: Parts) -> QuotaGate:
    """Build the gate through which calls pass."""
    configured = ConfiguredQuotas(config=parts.config, group=parts.topics.group)
    quotas = Quotas(of_route=configured.of_route, of_tenant=configured.of_tenant)
    return QuotaGate(quotas=quotas, configured=configured, clock=parts.clock)


def make_quota_duties(
    parts: Parts,
    *,
    gate: QuotaGate,
    store: GrantStore | None,
    admission: Admission,
    dispatching: Dispatch,
    granted: Callable[[], None],
    jitter: Callable[[], float],
    is_live: bool,
) -> Sequence[DutyLoop]:
    """Return the duties that ask for grants; none where no limit is set, and none can follow.

    Limits may follow if the settings are read again (`is_live`).
    """
    if not gate.configured and not is_live:
        return ()
    share = PartitionShare(
        partitions=dispatching.partitions,
        topics=parts.topics.lane_names,
        describe=parts.admin.describe,
        clock=parts.clock,
    )
    waiting_calls = WaitingCalls(table=dispatching.table, admission=admission, quotas=gate)
    sync = QuotaSync(
        quotas=gate.quotas,
        store=store,
        share=ShareGrantStore(partitions=share, clock=parts.clock, has_no_redis=store is None),
        clock=parts.clock,
        jitter=jitter,
        granted=granted,
        update_waiting=waiting_calls.update,
    )
    if not gate.configured.daily and not is_live:
        return (sync.run, share.run)
    counter = DayCounter(
        transactions=parts.transactions,
        clock=parts.clock,
        group=parts.topics.group,
        routes=lambda: gate.configured.daily,
        note=gate.quotas.note_used,
    )
    duties = (sync.run, share.run, counter.run)
    return [partial(_once_limited, gate, parts.clock, duty) for duty in duties]


async def _once_limited(gate: QuotaGate, clock: Clock, duty: DutyLoop) -> None:
    """Run a duty from the time on when a limit is set."""
    while not gate.configured:
        await clock.sleep(CHECK_EVERY_S)
    await duty()
