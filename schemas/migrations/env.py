"""Alembic's entry point; the context is made by `schemas.migrations`, so there is nothing to do here."""
