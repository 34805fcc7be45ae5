"""A task and how it travels: states, lines, envelopes, topic names, schemas of answers.

Everything is pure: no server, no clock, no configuration.
"""
