"""The consumer on Apache Kafka; each handle belongs to one thread.

Only this package and `producer.bus.kafka` import the Kafka client.
"""
