"""The commands of `python -m producer`, a file for each; they return exit codes.

They read arguments and print. They contain no SQL and open no topic themselves.
"""
