"""Tests of whole programs as child processes, on embedded parts and on real servers.

They see what a user sees: exit codes, output, topics, tables and the LLM's own log.
"""
