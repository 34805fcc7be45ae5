"""Calls to the provider. `agent/policy` judges the answers."""
