"""Alembic's entry point; empty, because `docllm.schemas.ledger.migrations` makes the context."""
