"""The names of a record's headers: docllm's own, and those that foreign tools read."""

OWN_PREFIX = "docllm-"

VERSION = "docllm-v"
LEDGER = "docllm-ledger"
GROUP = "docllm-group"
BATCH = "docllm-batch"
TASK = "docllm-task"
FENCE = "docllm-fence"
ATTEMPT = "docllm-attempt"
DUE_MS = "docllm-due-ms"
TENANT = "docllm-tenant"  # the tenant in the row; the line may lack it
POINTER = "docllm-pointer"  # the ledger alone has the value

# Hints, each left out where a plain task's would stand
TYPE = "docllm-type"
MODEL = "docllm-model"
ROUTE = "docllm-route"
DOCUMENT_BYTES = "docllm-bytes"  # the line names its document by URI; 0 if the size is unknown
MOST_OUT = "docllm-out"  # how many tokens the answer may have

# Dead letters
DISPOSITION = "docllm-disposition"  # all dead letters have it, and no other record
ORIGIN = "docllm-origin"
ERROR_CLASS = "docllm-error-class"
ERROR = "docllm-error"
FINGERPRINT = "docllm-fingerprint"
QUARANTINE = "docllm-quarantine"  # in the dead letter of a record: the id of its row
VALUE_DIGEST = "docllm-value-digest"
BAD_NAMES = "docllm-unreadable"  # replaces headers if the name of one of them is not text

# Traces
TRACEPARENT = "traceparent"  # W3C Trace Context: names the span that sent the record
TRACE_LINK = "docllm-trace-link"  # the `traceparent` that a foreign producer gave the task
TRACE_AFTER = "docllm-trace-after"  # the span of the attempt before

# Spring Kafka's headers of a dead letter, as text
SPRING_PREFIX = "kafka_dlt-"
SPRING_TOPIC = "kafka_dlt-original-topic"
SPRING_GROUP = "kafka_dlt-original-consumer-group"
SPRING_CLASS = "kafka_dlt-exception-fqcn"
SPRING_MESSAGE = "kafka_dlt-exception-message"

# Those of KIP-1191
KIP_PREFIX = "__dlq."
KIP_TOPIC = "__dlq.errors.topic"
KIP_PARTITION = "__dlq.errors.partition"
KIP_OFFSET = "__dlq.errors.offset"
KIP_GROUP = "__dlq.errors.group"
KIP_DELIVERIES = "__dlq.errors.delivery.count"
KIP_MESSAGE = "__dlq.errors.message"
