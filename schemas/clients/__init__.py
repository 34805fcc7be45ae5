"""Settings and addresses of clients: Kafka, HTTP, LLMs.

Nothing here makes a call.
"""
