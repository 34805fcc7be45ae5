"""Alembic's entry point; empty, because `schemas.ledger.migrations` makes the context."""
