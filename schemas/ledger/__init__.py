"""The database: tables, migrations, connections, transactions.

Statements are in `docllm.producer.ledger` and `docllm.agent.ledger`.
"""
