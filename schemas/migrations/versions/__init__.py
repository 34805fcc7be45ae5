"""The migrations: one file for each revision, in order."""
