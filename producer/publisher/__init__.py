"""The only code that writes to a bus: the adapters of the port Publisher."""
