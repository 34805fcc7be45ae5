"""The display of a running agent for a person."""
