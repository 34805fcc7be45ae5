"""The composition root: builds the parts of an agent, each from the parts made before it.

`agent.app`, or a simulation, chooses adapters and owns threads; no part is chosen or run here.
"""
