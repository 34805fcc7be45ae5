"""The buses, Kafka and the embedded one, behind the ports of `docllm.producer.ports`.

They carry bytes and know nothing of tasks.
"""
