"""A handler's calls of the LLM: built, permitted, judged, repaired, made again elsewhere.

The calls of one attempt share its time and its costs. Nothing here knows what a handler asks.
"""
