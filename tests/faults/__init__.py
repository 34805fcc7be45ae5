"""Programs are killed at each point between two durable effects; afterwards one checker must find nothing."""
