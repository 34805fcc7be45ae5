"""Alembic's entry point; empty, because `schemas.migrations` makes the context."""
