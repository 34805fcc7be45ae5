"""Enforces provider limits for all agents together, by a grant store in Redis.

It knows only what calls will cost. Without Redis, each agent keeps to its own share.
`redis_scripts` runs a script in Redis, for the board of routes too.
"""
