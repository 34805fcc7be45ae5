"""A text that must not be shown, such as a key."""


class Secret:
    """A text that must not be shown.

    `repr`, `str` and formatting give dots; `reveal()` gives the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret, to send, compare or hash it, or to mask it in texts of others.

        Nobody stores or shows it; a test lists who calls this, and for what.
        """
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)
