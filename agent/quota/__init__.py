"""Enforces provider limits for all agents together, by a ledger of grants in Redis.

It knows only what calls will cost. Without Redis, each agent keeps to its own share.
"""
