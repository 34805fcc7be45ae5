"""What both programs share: tasks, tables, settings, clients, stores of objects and results.

It imports nothing of producer or agent.
"""

if __name__ == "schemas":
    raise ImportError("this is docllm's folder of a checkout; import docllm.schemas instead")
