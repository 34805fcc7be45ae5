"""What a person sees of the ledger: tables and lines. No query, no decision.

Values come from `producer.ledger` and are printed as they are.
"""
