"""Agents from start to exit: the whole job, drains, kills, several of them, changed settings."""
