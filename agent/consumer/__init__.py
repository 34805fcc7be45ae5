"""Consumer handles: the adapters of the port Source."""
