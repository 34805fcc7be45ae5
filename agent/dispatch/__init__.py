"""Decides the next step of each record: ask, claim, start, delay, quarantine or finish.

Everything here runs on the event loop. Nothing here speaks to a server except through a port.
"""
