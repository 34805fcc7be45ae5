"""How tasks come in: loads, inbox records, hostile records, lanes."""
