"""Makes tasks of the records that other programs write to the group's inbox.

It makes no LLM call and runs no task. The SQL is in `docllm.producer.ledger`.
"""
