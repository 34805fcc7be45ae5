"""The question whether a refusal was about the key, or about one document alone. Pure."""


class KeyQuestion:
    """Open from a refusal until a call that began after it is answered.

    The cheap prompt is sent to answer it, one at a time.
    """

    def __init__(self) -> None:
        self.raised_at_s: float | None = None  # None: nothing is asked
        self._is_asked = False

    @property
    def is_open(self) -> bool:
        """Whether nothing has answered the question yet."""
        return self.raised_at_s is not None

    def raise_at(self, now_s: float) -> None:
        """Raise the question: a call was refused."""
        self.raised_at_s = now_s

    def ask(self) -> bool:
        """Return whether the prompt must be sent now; it is, if so."""
        is_due = self.is_open and not self._is_asked
        self._is_asked = self._is_asked or is_due
        return is_due

    def note_answered(self, began_s: float) -> None:
        """Learn that a call was answered: the key is good, if the call began after the refusal."""
        if self.raised_at_s is not None and began_s > self.raised_at_s:
            self.raised_at_s = None

    def note_ended(self) -> None:
        """Note that the prompt ended."""
        self._is_asked = False

    def close(self) -> None:
        """Give the question up: the prompt has shown nothing."""
        self.raised_at_s = None
