"""How a task travels through Kafka: topics and lanes, headers, ids of traces.

Nothing here sends or receives a record.
"""
