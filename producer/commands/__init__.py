"""What each command of `python -m producer` does once its arguments are read; each returns its exit code."""
