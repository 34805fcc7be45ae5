"""Decides what happens to each record: ask, claim, start, hold, quarantine, finish.

Everything here runs on the event loop. Nothing here speaks to a server except through a port.
"""
