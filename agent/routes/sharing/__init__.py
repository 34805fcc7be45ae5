"""What the agents of a group tell one another about their routes, through Redis.

Redis carries advice only: without it each agent watches its routes alone.
"""
