"""An intake without a database, for tests that let it write nothing."""

from unittest.mock import create_autospec

from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.intake.acceptance import Intake
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.settings.config import Config
from tests.support.ledger import NoLetters, NoRelay


def new_intake(
    *,
    partitions: Partitions | None = None,
    counts: Counts | None = None,
    failures: Failures | None = None,
    memory: MemoryWatch | None = None,
) -> Intake:
    """Return an intake of group `g` whose transactions do nothing."""
    limits, clock = InFlightLimits(), SystemClock()
    if partitions is None:
        partitions = Partitions({}, limits=limits)
    return Intake(
        partitions=partitions,
        transactions=create_autospec(Transactions, instance=True),
        letters=NoLetters(),
        apart=InlineExecutor(),
        clock=clock,
        counts=counts or Counts(),
        group="g",
        config=Config(),
        own_orders=OwnOrders(NoRelay()),
        failures=failures or Failures(),
        memory=memory or MemoryWatch(clock),
        limits=limits,
    )
