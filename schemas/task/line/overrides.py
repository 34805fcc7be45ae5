"""What a replay changes of a task: model, route, prompt, schema of the answer, document. Pure.

The stored line stays as it was loaded; whoever runs, estimates or shows the task reads it through
these functions.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

MODEL, ROUTE = "model", "route"
FIELDS = (MODEL, ROUTE, "prompt", "schema")
IDENTITY = ("size", "sha256", "etag")  # what tells one document from another
Overrides = Mapping[str, Any]


def merged(changes: Iterable[Overrides]) -> dict[str, Any]:
    """Return what several replays have changed, the oldest first.

    A route that is named alone is used with its own model, so it takes back an earlier one.
    """
    overrides: dict[str, Any] = {}
    for change in changes:
        if ROUTE in change:
            overrides.pop(MODEL, None)
        overrides.update(change)
    return overrides


def overridden(value: bytes, overrides: Overrides) -> bytes:
    """Return a task line, in either format, with these fields in place of its own.

    Fields that its format does not have are added, so that reading the line refuses them.
    """
    line = orjson.loads(value)
    given, changed = line, dict(overrides)
    if "body" in line:
        given = line["body"] = dict(line["body"])
        given |= {MODEL: changed.pop(MODEL)} if MODEL in changed else {}
    if ROUTE in changed and MODEL not in overrides:
        given.pop(MODEL, None)
    return orjson.dumps(line | changed)


def with_document(value: bytes, news: Mapping[str, Any]) -> tuple[bytes, str, str]:
    """Return a line with what is new of its document, and that part before and after, as JSON.

    A size, a digest or an etag that is not new is gone, because it would be that of another
    document.
    """
    line = orjson.loads(value)
    source = line["input"]
    before = {name: source[name] for name in IDENTITY if name in source}
    kept = {name: part for name, part in source.items() if name not in IDENTITY}
    changed = orjson.dumps(line | {"input": kept | dict(news)})
    return changed, orjson.dumps(before).decode(), orjson.dumps(dict(news)).decode()
