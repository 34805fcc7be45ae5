"""Handlers in child processes: what crashes, leaks or spins there costs its own task alone.

Agent and process exchange messages in JSON. The agent carries out what a handler asks for, on the
context of its attempt; the process reaches no server and no table of docllm.
"""
