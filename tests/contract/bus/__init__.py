"""The ports of a bus: write, read, commit, and its topics."""
