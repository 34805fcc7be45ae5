"""What an agent tells a person: counts, log lines, progress on a terminal.

It decides nothing and writes to no server.
"""
