"""Keeps the limits of provider accounts: all agents together, by one ledger of grants in Redis.

It asks for nothing but what tasks will cost. Without Redis, each agent keeps to a share.
"""
