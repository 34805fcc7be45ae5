"""A task: its states and other words here; its line, record, result and schema in a room each.

Everything is pure: no server, no clock, no configuration.
"""
