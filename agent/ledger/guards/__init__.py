"""The SQL of guards: what stops a fault of many tasks before it costs each of them.

Rows of tasks and guards are changed here, but the judgement of one reply is `agent/judge`'s.
"""
