"""The names of OpenTelemetry's semantic conventions, version 1.44.

They change from version to version, so no other file writes one.
"""

SEMCONV = "https://opentelemetry.io/schemas/1.44.0"

# ---- any span
ERROR_TYPE = "error.type"

# ---- messaging
SYSTEM = "messaging.system"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
OFFSET = "messaging.kafka.offset"
GROUP = "messaging.consumer.group.name"
KAFKA = "kafka"
SEND, PROCESS = "send", "process"

# ---- gen_ai
GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_CHAT = "chat"
MODEL = "gen_ai.request.model"
TOKENS_IN = "gen_ai.usage.input_tokens"
TOKENS_OUT = "gen_ai.usage.output_tokens"
TOKENS_CACHED = "gen_ai.usage.cache_read.input_tokens"
STATUS = "http.response.status_code"

# ---- database
DB_OPERATION = "db.operation.name"
BATCH_SIZE = "db.operation.batch.size"

# ---- docllm's own
TASK = "docllm.task"
TASK_ID = "docllm.task.id"
BATCH = "docllm.batch"
TYPE = "docllm.type"
TENANT = "docllm.tenant"
ROUTE = "docllm.route"
FENCE = "docllm.fence"
ATTEMPT = "docllm.attempt"
OUTCOME = "docllm.outcome"
VERDICT = "docllm.verdict"
COST = "docllm.cost_micro"
CALLS_LEFT_OUT = "docllm.calls_left_out"
CALL_ID = "docllm.call_id"
