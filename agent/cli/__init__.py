"""The command line of `docllm agent`: arguments, signals, exit codes.

It holds no rule about tasks.
"""
