"""The handlers that docllm brings along: one chat completion, and long documents in parts.

They work through a Context, as a user's handlers do. Nothing here begins or settles an attempt.
"""
