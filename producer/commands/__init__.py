"""The commands of `python -m producer`, called once arguments are read.

Each command returns its exit code.
"""
