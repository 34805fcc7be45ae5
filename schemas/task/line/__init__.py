"""Reads a task's line, strictly, and checks each of its fields.

It opens no file and knows no setting, so an agent reads exactly what a load has accepted.
"""
