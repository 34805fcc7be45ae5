"""One suite for each port; every adapter of the port must pass it.

Tests of programs or of single functions are elsewhere.
"""
