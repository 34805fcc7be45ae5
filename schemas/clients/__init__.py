"""Settings and addresses of clients: Kafka, HTTP, LLMs.

No call is made here.
"""
