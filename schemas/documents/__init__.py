"""Detects a document's kind and encoding from its bytes.

Both loads and agents use it. Nothing here parses documents; agents do that in child processes.
"""
