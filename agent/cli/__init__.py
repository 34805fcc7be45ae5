"""The command line of `python -m agent`: arguments, signals, exit codes.

It holds no rule about tasks.
"""
