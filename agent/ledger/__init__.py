"""The ledger over SQLAlchemy: claims, settles, leases, reaping; each statement guarded by state and owner."""
