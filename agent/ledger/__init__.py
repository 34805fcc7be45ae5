"""Every SQL statement that only agents run: claims, settlements, leases, repairs.

Statements shared with the producer are in `docllm.producer.ledger`. Nothing here decides the
outcome of an attempt.
"""
