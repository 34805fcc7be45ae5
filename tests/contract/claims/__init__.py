"""From the claim of a task to its settle, and the leases that claims live by."""
