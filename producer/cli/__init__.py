"""The commands of `docllm`, a file for each; they return exit codes.

They read arguments and print. They contain no SQL and open no topic themselves.
"""
