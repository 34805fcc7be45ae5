"""Fields and controls of a form: what one shows whose text is not stored beside it."""

_CHECKED, _UNCHECKED = "\N{BALLOT BOX WITH X}", "\N{BALLOT BOX}"
# Fields that show their own instruction, or what it draws.
_SHOWING = frozenset({"EQ", "IF", "MACROBUTTON", "QUOTE", "SYMBOL"})
_INSTRUCTION_CHARS = 10_000
_OFF = frozenset({"0", "false", "off"})


class FormField:
    """A field, or a control, that is open; `shown` is how much text there was before its own."""

    def __init__(self, shown: int) -> None:
        self.shown = shown
        self._instruction: list[str] = []
        self._entries: list[str] = []
        self._values: dict[str, str | None] = {}

    def instruct(self, text: str) -> None:
        """Add a part of the instruction."""
        self._instruction.append(text)

    def set(self, name: str, value: str | None) -> None:
        """Take a property of a list or check box."""
        if name == "listEntry":
            self._entries.append(value or "")
        else:
            self._values[name] = value

    def text(self) -> str:
        """Return what a field without text of its own shows."""
        values = self._values
        if self._entries:
            chosen = values.get("result", values.get("default")) or "0"
            number = int(chosen[:9]) if chosen.isdecimal() else 0
            return self._entries[number] if number < len(self._entries) else ""
        if "checkbox" in values:
            state = values.get("checked", values.get("default", "0"))
            return _UNCHECKED if state in _OFF else _CHECKED
        instruction = "".join(self._instruction)[:_INSTRUCTION_CHARS].strip()
        return instruction if instruction.partition(" ")[0].upper() in _SHOWING else ""
