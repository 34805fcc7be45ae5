"""Writes results to where their tasks want them, before they are settled.

What an object holds is decided in `schemas/task`; how stores work, in `schemas/outputs`.
"""
