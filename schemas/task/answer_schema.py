"""Bounds the work that a JSON Schema causes.

All subschemas of `anyOf` and similar keywords are tried on the same value. Each may refer to others
that do the same, for that value or for a part of it: thirty definitions that each name the next one
twice are a billion trials.

If a schema leads back to itself, the validator remembers what it tried, but not why it failed. It
lists the errors of each alternative and of each of its parts, with a copy of the part in each
error.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from schemas.task.patterns import objects_in

MOST = 100_000
MOST_COPIED = 300_000
MOST_COMPOSITE = 1_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_LISTS, _ONES, _NAMED = (
    ("allOf", "anyOf", "oneOf"),
    ("not", "if", "then", "else"),
    ("dependentSchemas", "dependencies"),
)
# Keywords whose subschemas apply to every part of a value; then keywords whose subschemas apply to
# one part.
_EACH = (
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "propertyNames",
)
_EACH_NAMED, _ONE_LISTS, _ONE_NAMED = (
    ("patternProperties",),
    ("items", "prefixItems"),
    ("properties",),
)
# To see which parts were evaluated, the validator goes through the subschemas beside such a keyword
# again, and so does each of these subschemas that has such a keyword itself.
_UNEVALUATED, _TIMES_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems"), 3
_MOST_LOOKUPS = 1_000_000
_DATA = ("enum", "const", "default", "examples")  # they hold values, no subschemas


def too_much(schema: dict[str, Any]) -> bool:
    """Return whether a value could be tried on more than `MOST` subschemas.

    The count covers the value, one part of it, and one part of that part. Any JSON object may be
    passed, whether it is a schema or not.
    """
    document = _Document(schema)
    return document.lookups > _MOST_LOOKUPS or document.most > MOST


def trials(schema: dict[str, Any]) -> int:
    """Return how many subschemas a value is tried on, counted up to just above `MOST`.

    The count covers the value, one part of it, and one part of that part.
    """
    return _Document(schema).most


def is_soon_explained(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a value's errors hold at most about `MOST_COPIED` parts of the value.

    `schema` must not be `too_much`.
    """
    document = _Document(schema)
    if not document.has_alternatives:
        return True
    parts, depth = _size(value)
    most = document.most
    trials: int = most ** (min(depth, 64) if document.circles else 1)
    return parts * depth * trials * document.most_listed(parts) <= MOST_COPIED


def repeated_id(schema: dict[str, Any]) -> str | None:
    """Return an `$id` that two subschemas share, or None. The validator fails on such a schema."""
    seen: set[str] = set()
    waiting: list[tuple[Any, str]] = [(schema, "")]
    while waiting:
        node, base = waiting.pop()
        if isinstance(node, list):
            waiting.extend((inner, base) for inner in node)
        elif isinstance(node, dict):
            name = _id(node)
            if name and not name.startswith("#"):
                base = _joined(base, name)
                if base in seen:
                    return name
                seen.add(base)
            waiting.extend((inner, base) for key, inner in node.items() if key not in _DATA)
    return None


def _joined(base: str, name: str) -> str:
    try:
        return urljoin(base, name)
    except ValueError:  # it is no URI; the validator's own error says so better
        return name


def composite_choices(schema: dict[str, Any]) -> int:
    """Return how many lists and objects the `enum`s of a schema hold.

    The validator compares each of them as a whole, one after another.
    """
    choices = (
        one
        for node in objects_in(schema)
        if isinstance(some := node.get("enum"), list)
        for one in some
    )
    return sum(isinstance(one, dict | list) for one in choices)


class _Document:
    """A schema, all objects in it, and the targets of its references."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.nodes = list(objects_in(schema))
        inner = (
            node for node in self.nodes if node is not schema and isinstance(node.get("$id"), str)
        )
        self._roots = [(_id(node), node) for node in (schema, *inner)]
        self._anchors: dict[str, list[dict[str, Any]]] = {}
        for node in self.nodes:
            for name in _ANCHORS:
                if isinstance(node.get(name), str):
                    self._anchors.setdefault(node[name], []).append(node)
        self._known: dict[int, int] = {}
        self.circles = False  # set while `most` is computed

    @property
    def has_alternatives(self) -> bool:
        """Return whether the validator would list the errors of several subschemas."""
        return any(name in node for node in self.nodes for name in ("anyOf", "oneOf"))

    @property
    def most(self) -> int:
        """Return the highest number of trials of any object in the schema.

        A schema that is nested too deep to be counted has too many.
        """
        try:
            return max(map(self.trials, self.nodes))
        except RecursionError:
            return MOST + 1

    def most_listed(self, parts: int) -> int:
        """Return the most errors that one object of the schema can have for one value.

        The value has `parts` parts. There is one error for each name that is required, or that is
        not allowed. An error of an `enum` holds the whole `enum`, and counts as many.
        """
        return (
            max(_listed(node) + (parts if "propertyNames" in node else 0) for node in self.nodes)
            + 1
        )

    @property
    def lookups(self) -> int:
        """Return at most how many places are searched for the targets of its references."""
        places = max(len(self._roots), *map(len, self._anchors.values()), 0)
        return places * sum(name in node for node in self.nodes for name in _REFERENCES)

    def trials(self, node: dict[str, Any]) -> int:
        """Return how many subschemas one value is tried on, counted up to just above `MOST`.

        The count covers the value, one part of it, and one part of that part. The object itself is
        one of the subschemas; a circle counts once.
        """
        known = self._known.get(id(node))
        if known is None:
            self._known[id(node)] = 0
            of_one_part = max(
                map(self.trials, _within(node, (), _ONE_LISTS, _ONE_NAMED)), default=0
            )
            of_each_part = sum(map(self.trials, _within(node, _EACH, (), _EACH_NAMED)))
            times = _TIMES_UNEVALUATED if any(name in node for name in _UNEVALUATED) else 1
            known = min(
                MOST + 1,
                1 + of_one_part + of_each_part + times * sum(map(self.trials, self._beside(node))),
            )
            self._known[id(node)] = known
        self.circles = self.circles or not known
        return known

    def _beside(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the subschemas that the same value is tried on."""
        yield from _within(node, _ONES, _LISTS, _NAMED)
        for name in _REFERENCES:
            if isinstance(reference := node.get(name), str):
                yield from self._targets(reference)

    def _targets(self, reference: str) -> Iterator[dict[str, Any]]:
        """Yield the possible targets of a reference.

        If several documents in the schema may be its base, the targets in all of them are yielded.
        """
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(fragment, ())
            return
        path = [
            part.replace("~1", "/").replace("~0", "~") for part in unquote(fragment).split("/")[1:]
        ]
        for name, root in self._roots:
            if not base or name.endswith(base):
                found = _at(root, path)
                if isinstance(found, dict):
                    yield found


def _listed(node: dict[str, Any]) -> int:
    by_name = [
        one
        for name in ("dependentRequired", "dependencies")
        if isinstance(some := node.get(name), dict)
        for one in some.values()
    ]
    return sum(
        len(names)
        for names in (node.get("required"), node.get("enum"), *by_name)
        if isinstance(names, list)
    )


def _id(node: dict[str, Any]) -> str:
    return name.rstrip("#") if isinstance(name := node.get("$id"), str) else ""


def _within(
    node: dict[str, Any], ones: Iterable[str], lists: Iterable[str], named: Iterable[str]
) -> Iterator[dict[str, Any]]:
    found = [node.get(name) for name in ones]
    found += [one for name in lists if isinstance(some := node.get(name), list) for one in some]
    found += [
        one for name in named if isinstance(some := node.get(name), dict) for one in some.values()
    ]
    yield from (one for one in found if isinstance(one, dict))


def _size(value: Any) -> tuple[int, int]:
    """Return how many parts a value has, and how deep they are nested."""
    parts, depth, level = 0, 0, [value]
    while level:
        parts, depth = parts + len(level), depth + 1
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]
    return parts, depth


def _at(root: Any, path: Iterable[str]) -> Any:
    """Return the target of a JSON pointer (RFC 6901) given as its parts, or None."""
    found = root
    for name in path:
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list):
            found = _item(found, name)
        else:
            return None
    return found


def _item(items: list[Any], name: str) -> Any:
    is_index = (
        name.isascii()
        and name.isdecimal()
        and len(name) <= len(str(len(items)))
        and str(int(name)) == name
    )
    return items[int(name)] if is_index and int(name) < len(items) else None
