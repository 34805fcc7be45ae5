"""Shares what the agents of a group know about their routes, through Redis.

Redis carries advice only. Without it, each agent watches its routes alone.
"""
