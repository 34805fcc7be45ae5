"""Apache Kafka: publishing, topics, and the positions of consumer groups.

Only this folder and `agent.consumer.kafka` may import the Kafka client.
"""
