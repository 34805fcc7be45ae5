"""The command line of `python -m agent`.

It reads arguments, sets up signals and gives exit codes. It holds no rule about tasks.
"""
