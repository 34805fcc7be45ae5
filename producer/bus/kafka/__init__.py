"""Apache Kafka: publishing, topics, and the positions of consumer groups.

Only this folder and `docllm.agent.consumer.kafka` may import the Kafka client.
"""
