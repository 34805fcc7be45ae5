"""The checks of a task line's fields.

Each check takes a parsed value and returns what the task stores, or raises LineError. The JSON
Schemas in `schemas/json/` state the same rules for other languages; a test compares the two over
one corpus.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from docllm.schemas.task.allowed_uris import require_prefix, uri_parts
from docllm.schemas.task.answer_schema.bounds import (
    MAX_COMPOSITE_CHOICES,
    MAX_TRIALS,
    composite_choices,
    id_problem,
    too_much,
)
from docllm.schemas.task.answer_schema.patterns import excess_of_patterns
from docllm.schemas.task.line.strict_json import LineError
from docllm.schemas.task.record.envelope import MAX_KEY_BYTES
from docllm.schemas.task.route_state import MAX_ROUTE_CHARS
from docllm.schemas.task.task_types import is_name
from docllm.schemas.text.document_text import blank_problem

MAX_MODEL_CHARS = 191
MAX_ROUTES = 100  # routes that one line may allow

CheckField = Callable[[str, Any], Any]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HOST = r"([A-Za-z0-9][A-Za-z0-9._-]*+|\[[0-9A-Fa-f:.]++\])(:[0-9]{1,5})?"
_DOCUMENT_URI = re.compile(
    r"(file:///|(s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]*+/)[!-~]+"
    rf"|https://{_HOST}([/?][!-\"$-\[\]-~]*+)?"  # neither # nor a backslash
)
_OUTPUT_URI = re.compile(r"((s3|gs|az|file)://(?>(?:[!$-.0->@-\[\]-~]*+/)+))[!$-.0->@-\[\]-~]*+")
_RFC3339 = re.compile(
    r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]++)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_SET_BY_DOCLLM = ("messages", "model", "stream")
_JSON_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def wrong_type(field: str, value: Any, right: str) -> LineError:
    """Return the error for a value of the wrong JSON type; `right` names the right type."""
    if value is None:
        return LineError(field, "is null", f"write {right}, or leave the field out")
    return LineError(
        field, f"is {_JSON_NAMES.get(type(value), 'of another type')}", f"write {right}"
    )


def text(field: str, value: Any) -> str:
    """Return the text; refuse an empty one."""
    if type(value) is not str:
        raise wrong_type(field, value, "a text")
    if not value:
        raise LineError(field, "is empty", "write a text")
    return value


def model(field: str, value: Any) -> str:
    """Return a model's name, of at most 191 characters, without surrounding blanks."""
    return _name_of("model", MAX_MODEL_CHARS, field, value)


def route(field: str, value: Any) -> str:
    """Return a route's name, of at most 64 characters, without surrounding blanks."""
    return _name_of("route", MAX_ROUTE_CHARS, field, value)


def routes(field: str, value: Any) -> tuple[str, ...]:
    """Return the names of at least one route."""
    if type(value) is not list:
        raise wrong_type(field, value, "a list of routes")
    if not value:
        raise LineError(field, "is empty", "name at least one route, or leave the field out")
    if len(value) > MAX_ROUTES:
        raise LineError(field, f"has {len(value)} routes", f"name at most {MAX_ROUTES}")
    return tuple(route(f"{field}.{number}", name) for number, name in enumerate(value))


def output_uri(field: str, value: Any) -> str:
    """Return the URI of the folder or prefix below which a result goes, or of its object."""
    found = _OUTPUT_URI.fullmatch(text(field, value))
    folder = output_folder(field, value if found is None else found[1])
    try:
        uri_parts(value)
    except ValueError as error:
        raise LineError(field, "is not the URI of an object", str(error)) from None
    return folder if value == folder else str(value)


def output_folder(field: str, value: Any) -> str:
    """Return the URI of the folder or prefix below which results go."""
    try:
        found = _OUTPUT_URI.fullmatch(text(field, value))
        if found is not None and found[1] == value:
            return require_prefix(str(value))
    except ValueError:
        pass
    raise LineError(
        field,
        "is not the URI of a folder for results",
        'write s3://BUCKET/FOLDER/, gs://, az:// or file:///FOLDER/, with a "/" at the end',
    )


def _name_of(noun: str, most: int, field: str, value: Any) -> str:
    if text(field, value) != value.strip():
        raise LineError(
            field, "has blanks around it", f"remove the blanks before and after the {noun}'s name"
        )
    if len(value) > most:
        raise LineError(
            field,
            f"is {len(value)} characters long",
            f"write the {noun}'s name, of at most {most} characters",
        )
    return str(value)


def key(field: str, value: Any) -> str:
    """Return a task's id: 1 to 191 bytes of UTF-8, no surrounding blanks, no control characters."""
    text(field, value)
    if value != value.strip():
        raise LineError(field, "has blanks around it", "remove the blanks before and after the id")
    if _CONTROL.search(value):
        raise LineError(field, "has a control character", "use printable characters")
    if len(value) * 4 > MAX_KEY_BYTES and (size := len(value.encode())) > MAX_KEY_BYTES:
        raise LineError(
            field,
            f"is {size} bytes long",
            f"use at most {MAX_KEY_BYTES} bytes of UTF-8, for example a hash of the long id",
        )
    return str(value)


def name(field: str, value: Any) -> str:
    """Return a short name: 1 to 64 ASCII letters, digits, dots, dashes and underscores."""
    if not is_name(text(field, value)):
        raise LineError(
            field,
            "is not a name",
            "use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
        )
    return str(value)


def whole(low: int, high: int) -> CheckField:
    """Return a check for a whole number from `low` to `high`; 3.0 counts, as in JSON Schema."""

    def check(field: str, value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise wrong_type(field, value, f"a whole number from {low} to {high}")
        if not low <= value <= high:
            raise LineError(field, f"is {value}", f"write a whole number from {low} to {high}")
        return value

    return check


def real(low: float, high: float) -> CheckField:
    """Return a check for a number from `low` to `high`."""

    def check(field: str, value: Any) -> float:
        if type(value) not in {int, float}:
            raise wrong_type(field, value, f"a number from {low:g} to {high:g}")
        if not low <= value <= high:
            raise LineError(field, f"is {value}", f"write a number from {low:g} to {high:g}")
        return float(value)

    return check


def truth(field: str, value: Any) -> bool:
    """Return true or false."""
    if type(value) is not bool:
        raise wrong_type(field, value, "true or false")
    return value


def json_object(field: str, value: Any) -> dict[str, Any]:
    """Return a JSON object as it is."""
    if type(value) is not dict:
        raise wrong_type(field, value, "an object")
    return value


def params(field: str, value: Any) -> dict[str, Any]:
    """Return the extra parameters of the call; refuse those that the task or docllm sets."""
    for name in _SET_BY_DOCLLM:
        if name in json_object(field, value):
            raise LineError(f"{field}.{name}", "cannot be set here", _FIX_PARAMS[name])
    return dict(value)


_FIX_PARAMS = {
    "messages": "write the field prompt, or a line of the OpenAI batch format",
    "model": "write the field model of the line",
    "stream": "leave it out: docllm reads whole answers",
}


def answer_schema(field: str, value: Any) -> dict[str, Any]:
    """Return a JSON Schema that compiles; refuse one that refers to other documents.

    Nothing is fetched. The cost to compile and to use the schema is checked first.
    """
    if (excess := excess_of_patterns(json_object(field, value))) is not None:
        raise LineError(
            field,
            excess,
            "use fewer or simpler patterns; say in the prompt what they would refuse",
        )
    if (problem := id_problem(value)) is not None:
        fix = (
            "give each subschema a short $id of its own, "
            "or leave the second one out and refer to the first by $ref"
        )
        raise LineError(field, problem, fix)
    if composite_choices(value) > MAX_COMPOSITE_CHOICES:
        fix = "list texts and numbers, or describe the lists and objects by items and properties"
        raise LineError(
            field, f"has more than {MAX_COMPOSITE_CHOICES} lists and objects in its enums", fix
        )
    if too_much(value):
        problem = f"tries more than {MAX_TRIALS} subschemas on one value and its parts"
        raise LineError(field, problem, "use fewer alternatives that refer to alternatives")
    # Its library is loaded where there is a schema.
    from docllm.schemas.task.answer_schema.validator import validator_of  # noqa: PLC0415

    try:
        validator_of(value)
    except ValueError as error:
        reason = str(error)[:200]
        raise LineError(
            field,
            f"is not a valid JSON Schema: {reason}",
            "correct the schema; put what it refers to into its $defs",
        ) from None
    return dict(value)


def instant(field: str, value: Any) -> datetime:
    """Return the UTC time of an RFC 3339 text."""
    if _RFC3339.fullmatch(text(field, value)) is None:
        raise _no_time(field)
    try:
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except ValueError:
        raise _no_time(field) from None


def _no_time(field: str) -> LineError:
    return LineError(
        field,
        "is not a time with a time zone, of the years 1000 to 2999 and without a leap second",
        "write RFC 3339, for example 2027-01-31T18:00:00Z",
    )


def source(field: str, value: Any) -> dict[str, Any]:
    """Return the input of a new task; refuse a text without content, which is a paid mistake."""
    given, checks = _source(field, value)
    for part in given:
        if part not in checks:
            raise LineError(
                f"{field}.{part}", "is not known here", f"known are: {', '.join(checks)}"
            )
    stored = {part: checks[part](f"{field}.{part}", given[part]) for part in given}
    if "text" in stored and (problem := blank_problem(stored["text"])):
        raise LineError(
            f"{field}.text", problem, "write the document's text, or leave the line out"
        )
    return stored


def accepted_source(field: str, value: Any) -> dict[str, Any]:
    """Return the input of a task: `text`, or `uri` and what is known of the document.

    Parts that only a newer version knows are left out.
    """
    given, checks = _source(field, value)
    return {
        part: check(f"{field}.{part}", given[part])
        for part, check in checks.items()
        if part in given
    }


def _source(field: str, value: Any) -> tuple[dict[str, Any], dict[str, CheckField]]:
    """Return an input with the checks of its parts."""
    given = json_object(field, value)
    if ("text" in given) == ("uri" in given):
        raise LineError(
            field,
            "needs exactly one of text and uri",
            'write {"text": "..."} or {"uri": "file:///..."}',
        )
    return given, _TEXT if "text" in given else _URI


def _any_text(field: str, value: Any) -> str:
    if type(value) is not str:
        raise wrong_type(field, value, "a text")
    return value


def is_file_uri(uri: str) -> bool:
    """Return whether a document's URI names a file of the reader's machine."""
    return uri.startswith("file:")


def _of_form(form: re.Pattern[str], problem: str, fix: str) -> CheckField:
    """Return a check for a text that has a form as a whole."""

    def check(field: str, value: Any) -> str:
        if form.fullmatch(text(field, value)) is None:
            raise LineError(field, problem, fix)
        return str(value)

    return check


_sha256 = _of_form(
    re.compile(r"[0-9a-f]{64}"),
    "is not a SHA-256",
    "write 64 digits and letters a to f, in lower case",
)


def _converted_from(field: str, value: Any) -> dict[str, Any]:
    """Return what a text was made of: the document's SHA-256, the converter, what it left out."""
    given = json_object(field, value)
    checks = {"sha256": _sha256, "converter": text, "omitted": _names}
    if unknown := given.keys() - checks:
        raise LineError(
            f"{field}.{min(unknown)}", "is not known here", f"known are: {', '.join(checks)}"
        )
    return {name: checks[name](f"{field}.{name}", part) for name, part in given.items()}


def _names(field: str, value: Any) -> list[str]:
    if type(value) is not list:
        raise wrong_type(field, value, "a list of texts")
    return [text(field, name) for name in value]


_TEXT: dict[str, CheckField] = {"text": _any_text, "source": _converted_from}
_URI: dict[str, CheckField] = {
    "uri": _of_form(
        _DOCUMENT_URI,
        "is not the URI of a document",
        "write file:/// and the whole path, https://HOST/..., or s3://, gs:// or az:// with "
        "BUCKET/KEY, without a user and a password; percent-encode blanks and characters that "
        "are not ASCII",
    ),
    "size": whole(0, 1 << 50),
    "sha256": _sha256,
    "etag": _of_form(
        re.compile(r"[!-~]{1,255}"),
        "is not an etag",
        "write it as the store lists it: up to 255 visible characters of ASCII",
    ),
}
