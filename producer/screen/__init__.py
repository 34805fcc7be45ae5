"""What a person sees of the ledger: tables and lines.

It makes no query and no decision; values come from `docllm.producer.ledger`.
"""
