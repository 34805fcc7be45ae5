"""Finds what a load warns about in its input: documents, deadlines and prompts that will fail.

Each module is one check, and none of them refuses a line.
"""
