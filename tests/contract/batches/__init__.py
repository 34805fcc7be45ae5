"""Orders of a person about batches: cancel, archive, purge, erase; retention; the audit."""
