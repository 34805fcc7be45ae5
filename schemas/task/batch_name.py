"""The rule for batch names, whether from --batch, a file name or a record's producer."""

MAX_BYTES = 191
RULE = f"use 1 to {MAX_BYTES} printable bytes without surrounding blanks"


def is_batch_name(name: str) -> bool:
    """Return whether a batch may have this name.

    Names are compared byte by byte, and shown on terminals.
    """
    return name == name.strip() != "" and name.isprintable() and len(name.encode()) <= MAX_BYTES
