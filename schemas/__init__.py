"""What both programs share: tasks, tables, settings, clients, stores of objects and results.

It imports nothing of producer or agent.
"""
