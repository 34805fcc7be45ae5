"""Wordings that a person teaches a route: which class a refusal has, by a text in it.

Expressions are matched by a library that takes linear time, so none can hold up an agent. Only an
expression imports it: every command reads settings.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.text.untrusted import contained

if TYPE_CHECKING:
    from jsonschema_rs import Validator

TAUGHT = (
    ErrorClass.TOO_LONG,
    ErrorClass.FILTERED,
    ErrorClass.RATE,
    ErrorClass.CAPACITY,
    ErrorClass.MONEY,
    ErrorClass.AUTH,
)
MAX_TEXTS, MAX_CHARS, READ_CHARS = 50, 200, 4096
_COMPILED_BYTES = 1 << 20
_MARK = "/"


def wordings(value: Any) -> dict[str, tuple[str, ...]]:
    """Check a table of wordings: for each class a list of texts and expressions."""
    if not isinstance(value, Mapping):
        raise ValueError('write a table, such as { TOO_LONG = ["max input reached"] }')  # noqa: TRY004
    return {name: _checked(name, texts) for name, texts in value.items()}


def _checked(name: str, texts: Any) -> tuple[str, ...]:
    if name not in TAUGHT:
        raise ValueError(f"{name[:MAX_CHARS]!r} is no class; the classes are {', '.join(TAUGHT)}")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'{name}: write a list of texts, such as ["max input reached"]')
    if len(texts) > MAX_TEXTS:
        raise ValueError(f"{name}: it has {len(texts)} texts; at most {MAX_TEXTS}")
    for number, text in enumerate(texts, 1):
        if not text.strip() or len(text) > MAX_CHARS:
            raise ValueError(f"{name}, text {number}: write 1 to {MAX_CHARS} characters")
        if _is_expression(text):
            _compiled(name, number, text)
    return tuple(texts)


class Wordings:
    """The wordings of one route, ready to match. False if there are none."""

    def __init__(self, by_class: Mapping[str, Sequence[str]]) -> None:
        self._by_class = by_class
        self._rows = [
            (ErrorClass[name], *_split(name, texts)) for name, texts in by_class.items() if texts
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that judges a large reply makes the expressions anew: they cannot be sent.
        return Wordings, (self._by_class,)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def class_of(self, text: str) -> ErrorClass | None:
        """Return the first class with a wording in the beginning of a text, None without one.

        Capitals make no difference to plain texts.
        """
        read = text[:READ_CHARS]
        lower = read.lower()
        for error_class, plain, expressions in self._rows:
            if any(words in lower for words in plain):
                return error_class
            with contained():
                if any(expression.is_valid(read) for expression in expressions):
                    return error_class
        return None


NO_WORDINGS = Wordings({})


def _split(name: str, texts: Sequence[str]) -> tuple[list[str], list["Validator"]]:
    plain = [text.lower() for text in texts if not _is_expression(text)]
    expressions = [
        _compiled(name, number, text)
        for number, text in enumerate(texts, 1)
        if _is_expression(text)
    ]
    return plain, expressions


def _is_expression(text: str) -> bool:
    return len(text) > len(_MARK) * 2 and text.startswith(_MARK) and text.endswith(_MARK)


def _compiled(name: str, number: int, text: str) -> "Validator":
    import jsonschema_rs  # noqa: PLC0415 - see above

    options = jsonschema_rs.RegexOptions(size_limit=_COMPILED_BYTES, dfa_size_limit=_COMPILED_BYTES)
    try:
        with contained():
            return jsonschema_rs.validator_for(
                {"pattern": text[1:-1]}, offline=True, pattern_options=options
            )
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever the library says, the expression cannot be used
        raise ValueError(
            f"{name}, text {number}: the expression is broken, too large, or has look-around or a "
            "back-reference"
        ) from None
