"""What the ledger counts, and the figures that people and programs read from it."""
