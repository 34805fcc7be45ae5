"""Duties for what waits for a route, a guard or a limit.

They ask the ledger and tell the routes of this agent; probes of routes are sent by `agent/routes`.
"""
