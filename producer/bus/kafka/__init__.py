"""Apache Kafka: publishing, topics, positions of groups.

Only this package and `agent.consumer.kafka` import the Kafka client.
"""
