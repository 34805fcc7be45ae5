"""The protocols through which the path of a record uses the outside world: a module for each port.

Adapters implement them, simulations replace them by fakes, and one contract suite for each port
runs against all of them. The values that they exchange stand beside them; `outcome` has the ends of
an attempt. `Publisher` and `TopicAdmin` live with their users in `producer/ports.py` and are named
here too.
"""

from docllm.agent.ports.ledger import (
    ALONE_LOSSES,
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
from docllm.producer.ports import Backlog, Order, Publisher, Refusal, TopicAdmin, TopicState
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.rejected_record import RejectedRecord

__all__ = [
    "ALONE_LOSSES",
    "LLM",
    "SUSPECT_LOSSES",
    "Assigned",
    "AtRest",
    "Backlog",
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
    "Publisher",
    "Record",
    "Recreated",
    "Refusal",
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
