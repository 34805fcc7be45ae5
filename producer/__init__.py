"""The producer: loads tasks, shows their state, exports results; also buses and shared SQL.

It imports schemas and never agent.
"""
