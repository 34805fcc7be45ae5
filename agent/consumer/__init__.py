"""Reads records from topics and commits offsets: the adapters of the port Source.

They know bytes and positions, and nothing of tasks.
"""
