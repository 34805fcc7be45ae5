"""What a batch may be called, whoever names it: a person with --batch, a file, or the producer of a record."""

MAX_BYTES = 191
RULE = f"use 1 to {MAX_BYTES} printable bytes without surrounding blanks"


def is_batch_name(name: str) -> bool:
    """Return whether a batch may have this name; it is compared byte by byte, and shown on terminals."""
    return name == name.strip() != "" and name.isprintable() and len(name.encode()) <= MAX_BYTES
