"""The producer: loads tasks, shows their state, exports results; also buses, SQL, metrics.

It imports schemas and never agent.
"""
