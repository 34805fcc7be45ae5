"""The database: tables, migrations, connections, transactions.

Statements are in `producer.ledger` and `agent.ledger`.
"""
