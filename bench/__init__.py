"""Measures docllm from outside, on its own programs: `python -m bench`.

Nothing of the product may import this package.
"""
