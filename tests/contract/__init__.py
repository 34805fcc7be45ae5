"""One suite per port; each runs on every adapter of the port."""
