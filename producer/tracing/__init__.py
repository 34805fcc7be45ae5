"""Traces: spans as values, the port that takes them, and its adapter, which speaks OTLP.

No SQL, no decision about a task. Only `otlp.py` knows OpenTelemetry's libraries.
"""
