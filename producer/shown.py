"""What strangers wrote, made fit for a terminal: names, answers and errors may hold what moves a cursor or forges a line."""


def shown(text: str, limit: int | None = None) -> str:
    """Return text that is safe to show, on one line."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:limit])
