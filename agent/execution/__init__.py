"""Runs claimed tasks in slots and settles their outcomes.

It knows neither topics nor offsets.
"""
