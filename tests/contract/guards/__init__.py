"""Guards of batches that fail as a whole, and tasks that wait for a closed route."""
