"""What both programs agree on: tasks, tables, settings, clients.

It imports nothing of producer or agent.
"""
