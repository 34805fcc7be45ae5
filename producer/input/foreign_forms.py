r"""Names the form of lines that were refused: JSON objects of other programs, or no JSON at all.

Only lines that are no tasks are looked at. Other texts are arrays, tables, other languages or
objects side by side: JSON's own reader says where a text ceases to be JSON, and the characters
there tell what it is.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

OURS = (
    "write docllm's lines, with id and prompt, or OpenAI's, with custom_id and a body that has "
    "messages"
)
NAME_COLUMNS = "for a table, name its columns: --map id=COLUMN,text=COLUMN"
_HEAD_CHARS = 200
_BLANK = " \t\r\n"  # JSON's; Python's has control characters that separate records
_SHOWN_CHARS = 20  # of a text before an object
_DECODER = json.JSONDecoder()
_EVAL = (
    'python3 -c "import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) '
    'for line in sys.stdin]" < FILE | docllm load -'
)


@dataclass(frozen=True, slots=True)
class ForeignForm:
    """A form of lines that is not read: what it is, and what to do.

    If `alone`, a file that begins with it has no lines at all. In `fix`, FILE is the input.
    """

    error: str
    fix: str
    field: str = ""
    alone: bool = False


_LINES = "put each object on one line: jq -c . FILE | docllm load -"
_SEVERAL = ForeignForm("is a JSON object over several lines", _LINES, alone=True)
_ARRAY = ForeignForm(
    "begins a JSON array, not a line of JSON",
    "put each of its objects on one line: jq -c '.[]' FILE | docllm load -",
    alone=True,
)
_PYTHON = ForeignForm("is written by Python's repr, not as JSON", f"convert it: {_EVAL}")
_COMMENT = ForeignForm("has a comment, which JSON does not know", "take the comments out")
_COMMA = ForeignForm(
    "ends with a comma, as if it were part of a JSON array",
    "take the commas at the ends of the lines away: "
    r"sed -E 's/,[[:space:]]*$//' FILE | docllm load -",
    alone=True,
)
_CARRIAGE_RETURNS = ForeignForm(
    "has its lines ended by CR alone",
    r"write line feeds: tr '\r' '\n' < FILE | docllm load -",
    alone=True,
)
_QUOTES = ForeignForm(
    "has typographic quotes, not those of JSON",
    """write " for each of them: sed 's/[“”„«»]/"/g' FILE | docllm load -""",
)
_WITHIN = ForeignForm(
    "is JSON within a text of JSON", "unpack it: jq -c fromjson FILE | docllm load -"
)
_JSON5 = "write JSON: names and texts in double quotes, no comments, no comma before a bracket"
_TABLE = (
    "write one object with id and prompt on each line, as pandas does: "
    "df.to_json('tasks.jsonl', orient='records', lines=True)"
)
_TEXT = ForeignForm(
    "is text, such as a row of a table (CSV), not JSON",
    f"{NAME_COLUMNS}; load a document with: docllm load --documents FILE --prompt 'Summarize: "
    "{document}'",
)

_ARRAY_BEGINS = re.compile(r"\[\s*+(?:$|\[*+\s*+[{\"\d\]-]|(?:true|false|null)\b(?!\s*+\]\s*+$))")
_SECTION = re.compile(r"\[{1,2}[\w. \"'-]++\]{1,2}\s*+(?:#|$)")
_SEPARATOR_CHARS = 8
_WORD = re.compile(r"\w")
_OPEN = re.compile(r"[{\[,:(]\s*+\Z")


def form_of_text(text: str) -> ForeignForm | None:
    """Return the form of a text that is no JSON object; None if nothing is known of it."""
    text = text.strip(_BLANK)
    if not text.startswith("{"):
        head = text[:_HEAD_CHARS]
        return next((form for test, form in _HEADS if test(head)), None) or _of_other(text)
    try:
        _, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        return _of_fault(error.doc, error.pos)
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        return None
    return _of_rest(text[end:])


def _of_fault(text: str, position: int) -> ForeignForm | None:
    """Return the form of a text by the characters at which it ceases to be JSON."""
    rest = text[position : position + _HEAD_CHARS].lstrip()
    if text[max(0, position - _HEAD_CHARS) : position].rstrip().endswith(","):
        rest = f",{rest}" if rest[:1] in {"}", "]"} else rest
    if not rest:
        return _SEVERAL if _OPEN.search(text[-_HEAD_CHARS:]) else None
    return next((form for test, form in _FAULTS if test(rest)), None)


def _of_rest(rest: str) -> ForeignForm | None:
    """Return the form of a line by what is behind its first object."""
    shown = rest[:_HEAD_CHARS].strip()
    if not shown:
        return None
    if shown == ",":
        return _COMMA
    if shown.startswith(("//", "/*", "#")):
        return _COMMENT
    between, brace, _ = rest[:_SEPARATOR_CHARS].partition("{")
    if not brace or _WORD.search(between.replace("\\n", "").replace("\\r", "")):
        beginning = ascii(shown[:_SHOWN_CHARS])
        return ForeignForm(f"has {beginning} behind its object", "write nothing but JSON")
    return _CARRIAGE_RETURNS if between.startswith("\r") else _of_separator(between.strip())


def _of_separator(between: str) -> ForeignForm:
    if not between:
        return ForeignForm("holds several objects", _LINES)
    return ForeignForm(
        f"holds several objects, with {between!a} between them",
        "write a line feed there, so that each object is on a line of its own",
    )


def _of_other(text: str) -> ForeignForm | None:
    if not text:
        return None
    if _is_other_json(text):
        return ForeignForm("is JSON, but no object", OURS)
    if _OPEN.search(text[-_HEAD_CHARS:]) and "=" in text:
        return ForeignForm("is source code, not JSON", _JSON5, alone=True)
    return _TEXT


def _is_other_json(text: str) -> bool:
    """Return whether a text is a number, a word of JSON or a text that holds no object."""
    try:
        json.loads(text)
    except (RecursionError, ValueError):
        return False
    return True


_Test = Callable[[str], object]
_HEADS: tuple[tuple[_Test, ForeignForm], ...] = (
    (re.compile(r"b['\"]|\(|\[\s*+\{'").match, _PYTHON),
    (_ARRAY_BEGINS.match, _ARRAY),
    (_SECTION.match, ForeignForm("is a section of TOML or INI, not JSON", _TABLE)),
    (
        re.compile(r"<[!?/a-zA-Z]").match,
        ForeignForm(
            "begins a page of HTML or XML, perhaps an error of the server that it came from",
            "get the file again, or load documents with --documents",
            alone=True,
        ),
    ),
    (
        lambda head: head.startswith("\x1e"),
        ForeignForm(
            "is part of a JSON text sequence (RFC 7464)",
            r"take its separators away: tr -d '\036' < FILE | jq -c . | docllm load -",
        ),
    ),
    (re.compile(r'"\s*+\{\s*+\\"').match, _WITHIN),
    (lambda head: head.startswith(("//", "/*")), _COMMENT),
    (
        re.compile(r"[^{]{1,100}\{\s*+\"(?!\")").match,
        ForeignForm(
            "has text before its object", "take it away: sed 's/^[^{]*//' FILE | docllm load -"
        ),
    ),
    (
        re.compile(r"-{3}\s*+$|-\s++\{|-\s++\w[\w ]{0,40}+:|[\w]{1,40}+:(?:\s|$)").match,
        ForeignForm("is YAML, or another text of names and values, not JSON", _TABLE),
    ),
)
_FAULTS: tuple[tuple[_Test, ForeignForm], ...] = (
    (lambda rest: rest.startswith("'"), _PYTHON),
    (re.compile(r"(?:None|True|False)\b").match, _PYTHON),
    (re.compile("[“”„«»\\u2018\\u2019]").match, _QUOTES),
    (
        re.compile(r",\s*+[}\]]").match,
        ForeignForm("has a comma before a closing bracket", _JSON5),
    ),
    (re.compile("//|/[*]|#").match, _COMMENT),
    (
        lambda rest: rest.startswith('\\"'),
        ForeignForm("has backslashes before its quotes", "write it without them"),
    ),
    (
        re.compile(r"[A-Za-z_$]").match,
        ForeignForm("has names or texts without quotes (JavaScript, JSON5, YAML)", _JSON5),
    ),
)


# ---- objects

_KNOWN = frozenset({"id", "prompt", "custom_id", "body", "key"})
_FIELDS_SHOWN = 5  # names
_FIELD_CHARS = 40  # of each


def foreign_form(text: str, field: str) -> ForeignForm | None:
    """Return the form of a line that was refused; None if the refusal says enough.

    `field` is the field that was refused.
    """
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError:
        line = None
    return _of_object(line, field) if isinstance(line, dict) else form_of_text(text)


def _of_object(line: Mapping[str, Any], field: str) -> ForeignForm | None:
    inner = line.get("request", line.get("body"))
    request: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    if "prompt" in line and "output" not in line:  # a line of ours, with a mistake
        return None
    found = next((form for test, form in _OBJECTS if test(line, request)), None)
    if found is not None:
        return found
    if field == "url":
        url = str(line["url"])[:_FIELD_CHARS]
        return ForeignForm(
            f"asks for {url!r}, and only chat completions are supported",
            "write /v1/chat/completions, with a matching body",
            field,
        )
    if line and not _KNOWN & line.keys():
        names = ", ".join(name[:_FIELD_CHARS] for name in list(line)[:_FIELDS_SHOWN])
        return ForeignForm(f"has no field of a task line, but {names}", OURS)
    return None


_ObjectTest = Callable[[Mapping[str, Any], Mapping[str, Any]], object]
_RESULTS = frozenset({"response", "result", "choices", "modelOutput", "batch_result"})
_OBJECTS: tuple[tuple[_ObjectTest, ForeignForm], ...] = (
    (
        lambda line, _: {"id", "status", "result", "attempts"} <= line.keys(),
        ForeignForm(
            "is a result that docllm exported",
            "load the input of that batch; to run its dead tasks again: docllm replay",
        ),
    ),
    (
        lambda line, _: {"line", "field", "error", "fix", "text"} <= line.keys(),
        ForeignForm(
            "is a rejected line with further fields",
            "repair text, and leave the fields as they are",
        ),
    ),
    (
        lambda line, _: _RESULTS & line.keys() or line.get("object") in {"batch", "response"},
        ForeignForm("is a result of a batch or chat API", "load the input of that batch"),
    ),
    (
        lambda line, _: "custom_id" in line and "params" in line,
        ForeignForm(
            "is a line of Anthropic's Message Batches (custom_id, params)",
            f"{OURS}; Anthropic's OpenAI-compatible API answers both",
        ),
    ),
    (
        lambda _, request: "anthropic_version" in request,
        ForeignForm("is a line of Claude's batches at Vertex AI (anthropic_version)", OURS),
    ),
    (
        lambda line, request: "contents" in line or "contents" in request,
        ForeignForm("is a line of Gemini's or Vertex AI's batches (contents)", OURS),
    ),
    (
        lambda line, _: "modelInput" in line,
        ForeignForm("is a line of Amazon Bedrock's batches (modelInput)", OURS),
    ),
    (
        lambda line, _: "batch_request" in line,
        ForeignForm("is a line of xAI's batches (batch_request)", OURS),
    ),
    (
        lambda line, request: "request" in line and "messages" in request,
        ForeignForm("has its request in request, not in body", "rename the field request to body"),
    ),
    (
        lambda line, _: "messages" in line,
        ForeignForm(
            "has messages, but not in a body",
            'write {"custom_id": "1", "body": {"messages": [...]}}, each with an id of its own',
        ),
    ),
    (
        lambda line, request: (
            "url" not in line and "messages" not in request and {"input", "prompt"} & request.keys()
        ),
        ForeignForm(
            "is a request of another API than chat completions: its body has input or prompt",
            'write "messages": [{"role": "user", "content": "..."}] into the body',
        ),
    ),
)
