"""How servers are spoken to: settings of the Kafka client, HTTP, addresses of LLMs.

No call is made here.
"""
