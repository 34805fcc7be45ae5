"""Tasks and providers that fail: retries, dead letters, guards, poison."""
