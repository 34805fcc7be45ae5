"""The protocols through which the path of a record uses the outside world: a module for each port.

Adapters implement them, simulations replace them by fakes, and one contract suite for each port
runs against all of them. The values that they exchange stand beside them; `outcome` has the ends of
an attempt. `TopicAdmin` lives with its users in `producer/ports.py` and is named here too.
"""

from docllm.agent.ports.ledger import (
    SUSPECT_LOSSES,
    Claimable,
    ClaimAnswer,
    ClaimAnswers,
    Ledger,
    Letters,
    Row,
    Settlement,
    Verdict,
)
from docllm.agent.ports.llm import LLM, Call, CallFailed, Reply, RouteClient
from docllm.agent.ports.source import (
    Assigned,
    AtRest,
    Event,
    Partition,
    Record,
    Recreated,
    Revoked,
    Source,
    SourceFailed,
)
from docllm.producer.ports import Order, TopicAdmin, TopicState
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.rejected_record import RejectedRecord

__all__ = [
    "LLM",
    "SUSPECT_LOSSES",
    "Assigned",
    "AtRest",
    "Call",
    "CallFailed",
    "ClaimAnswer",
    "ClaimAnswers",
    "Claimable",
    "Clock",
    "Event",
    "Ledger",
    "Letters",
    "Order",
    "Partition",
    "Record",
    "Recreated",
    "RejectedRecord",
    "Reply",
    "Revoked",
    "RouteClient",
    "Row",
    "Settlement",
    "Source",
    "SourceFailed",
    "TopicAdmin",
    "TopicState",
    "Verdict",
]
