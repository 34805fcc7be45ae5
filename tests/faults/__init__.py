"""Fault runs: programs are killed at each point between two durable effects.

Afterwards one checker must find nothing wrong.
"""
