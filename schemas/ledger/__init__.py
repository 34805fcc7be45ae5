"""The database: tables, migrations, connections, transactions.

What is asked of it is elsewhere, with the owner of each statement.
"""
