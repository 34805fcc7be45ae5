"""A text that must not be shown, such as a key."""

from docllm.schemas.errors import ConfigError


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


def authorization(api_key: Secret | None) -> Secret | None:
    """Return the value of the authorization header for an LLM.

    Raises ConfigError for a key that no header can hold.
    """
    if api_key is None:
        return None
    key = api_key.reveal().strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "llm.api_key is empty, or has blanks or characters that no key has; copy the key again"
        )
    return Secret(f"Bearer {key}")
