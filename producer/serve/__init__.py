"""Serves a group over HTTP: `docllm serve`.

Its doors do what commands do: they load, read and export by the same functions. Whether a request
may come in is decided in `gate.py`, before any door.
"""
