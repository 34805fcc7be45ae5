"""Calls to the provider. Judging what comes back is `agent/policy`."""
