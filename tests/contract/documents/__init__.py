"""Documents and results outside the ledger: web servers, object stores, pointers."""
