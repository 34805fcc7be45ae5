"""The consumer on Apache Kafka. Each handle belongs to one thread.

Only this folder and `docllm.producer.bus.kafka` may import the Kafka client.
"""
