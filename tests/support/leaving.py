"""How long an agent may take to leave, besides the time of its running calls."""

from docllm.agent.agent import HOOKS_S, PUBLISH_S, SETTLE_S, STOP_S
from docllm.agent.consumer.kafka.source import LEAVE_S
from docllm.agent.execution.slots import CANCEL_S

LEAVING_S = LEAVE_S + CANCEL_S + SETTLE_S + HOOKS_S + PUBLISH_S + STOP_S
