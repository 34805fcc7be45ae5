"""Amounts of money, which the ledger keeps as whole millionths."""

_MICRO = 1_000_000


def units(micro: int) -> float:
    """Return an amount of millionths in whole units of the currency of the prices."""
    return micro / _MICRO
