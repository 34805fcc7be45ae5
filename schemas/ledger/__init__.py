"""The database: tables, migrations, connections, transactions.

Statements are elsewhere, with the code that owns them.
"""
