"""The commands of `python -m producer`; each returns its exit code.

They read arguments and print. SQL, files and topics are behind them.
"""
