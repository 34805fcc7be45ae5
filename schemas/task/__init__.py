"""A task and how it travels: states, lines, envelopes, topic names, schemas of answers.

Pure: no server, no clock, no configuration.
"""
