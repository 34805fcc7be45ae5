"""Runs handlers in child processes, where a crash, leak or endless loop affects one task.

Agent and process exchange messages in JSON. The agent carries out what a handler asks for, on the
context of its attempt; the process reaches no server and no table of docllm.
"""
