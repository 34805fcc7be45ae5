"""The repairs that every agent does for its group, in rounds.

Any number of agents may repair at once. None settles a task for an agent that is alive.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from docllm.agent.inflight.partitions import Partitions
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.agent.ledger.leases import leasing, lock_rows
from docllm.agent.ledger.recovery import losses
from docllm.agent.maintenance.cleanup.compactor import compact
from docllm.agent.maintenance.cleanup.trimmer import trim_duties
from docllm.agent.maintenance.duty import Duty, DutyLoop, repeat
from docllm.agent.maintenance.repair.canceller import Canceller
from docllm.agent.maintenance.repair.reaper import Reaper
from docllm.agent.maintenance.repair.replayer import Replayer
from docllm.agent.maintenance.repair.sweeper import Sweeper
from docllm.agent.membership.heartbeat import Heartbeat
from docllm.agent.membership.life_locks import LifeLocks
from docllm.producer.app import Parts
from docllm.producer.publishing.relay import Relay
from docllm.producer.replay.applier import Applier
from docllm.schemas.runtime.clock import Clock

# The pauses of the rounds.
REAP_EVERY_S = 1.0
RELAY_EVERY_S = 2.0
TIDY_EVERY_S = 60.0
DROP_S = 30.0
# The last part of each slow round's pause; the whole pause if Kafka may have lost records.
LOST_S = 5.0


def repair_loops(
    parts: Parts,
    *,
    relay: Relay,
    applier: Applier,
    heartbeat: Heartbeat,
    locks: LifeLocks | None,
    lost_records: asyncio.Event,
    ask_about_tasks_of: Callable[[frozenset[int]], None],
    ask_about_batches: Callable[[frozenset[str]], None],
    partitions: Sequence[Partitions],
    resets: Counter[str],
) -> Sequence[DutyLoop]:
    """Return the loops of one agent's repairs: reaping, relaying, tidying, and replays.

    The duties of a round run one after another, so slow duties never run at the same time. Replays
    run apart from them, because a replay at full speed takes minutes.
    `lost_records` is set when Kafka seems to have lost records: then the sweep runs soon. `resets`
    counts the tasks that are taken from other claims, by cause.
    """
    transactions, clock, topics, admin = parts.transactions, parts.clock, parts.topics, parts.admin
    duty = partial(Duty, clock=clock, kafka=parts.kafka)
    write, group = transactions.write, topics.group
    reaper = Reaper(
        transactions=transactions,
        clock=clock,
        group=group,
        heartbeat=heartbeat,
        locks=locks,
        ask_about_tasks_of=ask_about_tasks_of,
        spans=parts.spans,
        ledger_id=parts.ledger_id,
        resets=resets,
    )
    canceller = Canceller(
        transactions=transactions, group=group, ask_about_batches=ask_about_batches
    )
    replayer = Replayer(transactions=transactions, applier=applier, clock=clock, group=group)
    counts = CompactionLimits(after_s=parts.config.agent.compact_after_s)
    tidying = (
        duty(name="the sweep", work=_sweeper(parts).sweep),
        duty(name="continuing cancels", work=canceller.cancel),
        duty(name="rolling up counts", work=partial(compact, transactions, clock, counts)),
        duty(name="forgetting old agents", work=partial(write, leasing.forget)),
        duty(name="taking back losses", work=reaper.take_back_losses),
        duty(name="forgetting old losses", work=partial(write, losses.forget)),
        duty(name="forgetting old locks", work=partial(write, lock_rows.forget)),
        *trim_duties(duty, topics, admin, partitions),
    )
    return (
        partial(repeat, _reaping(duty, reaper), partial(clock.sleep, REAP_EVERY_S)),
        partial(repeat, _relaying(duty, relay), partial(clock.sleep, RELAY_EVERY_S)),
        partial(repeat, tidying, partial(_pause, clock, lost_records)),
        replayer.run,
    )


def _reaping(duty: Callable[..., Duty], reaper: Reaper) -> Sequence[Duty]:
    return (
        duty(name="declaring agents lost", work=reaper.declare_lost_agents),
        duty(name="resetting lost tasks", work=reaper.reset),
        duty(name="reporting agents that are gone", work=reaper.report_gone),
    )


def _relaying(duty: Callable[..., Duty], relay: Relay) -> Sequence[Duty]:
    return (
        duty(name="relaying orders", work=relay.relay_once),
        duty(name="dropping orders of final tasks", work=relay.drop_final, every_s=DROP_S),
    )


def _sweeper(parts: Parts) -> Sweeper:
    return Sweeper(
        transactions=parts.transactions,
        clock=parts.clock,
        topics=parts.topics,
        admin=parts.admin,
        slack_s=parts.config.agent.sweep_slack_s,
    )


async def _pause(clock: Clock, lost_records: asyncio.Event) -> None:
    """Wait TIDY_EVERY_S plus LOST_S, but only LOST_S once Kafka seems to have lost records.

    A loss that was noticed during the last round counts too.
    """
    waited_s = 0.0
    while waited_s < TIDY_EVERY_S and not lost_records.is_set():
        await clock.sleep(REAP_EVERY_S)
        waited_s += REAP_EVERY_S
    await clock.sleep(LOST_S)
    lost_records.clear()  # the sweep that follows looks for all records lost until now
