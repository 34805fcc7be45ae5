"""Bounds the work that a JSON Schema causes.

`anyOf` and similar keywords try all their subschemas on the same value, and each subschema may do
so again, for the value or for a part of it. Thirty definitions that each refer to the next one
twice cause a billion trials. For a recursive schema, the validator remembers what it tried, but not
why it failed. It lists the errors of every alternative and every part, each with a copy of that
part.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from docllm.schemas.task.answer_schema.patterns import objects_in

MAX_TRIALS = 100_000  # subschemas that may be tried on one value
MAX_COPIED_PARTS = 300_000  # parts of a value that its errors may copy
MAX_COMPOSITE_CHOICES = 1_000  # lists and objects in enums
MAX_ID_CHARS = 1_000  # of an `$id` that is joined to those around it
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
# Keywords whose subschemas apply to the value itself: one, those of a list, those of an object.
_SINGLE = ("not", "if", "then", "else")
_IN_LISTS = ("allOf", "anyOf", "oneOf")
_IN_OBJECTS = ("dependentSchemas", "dependencies")
# Keywords whose subschemas apply to every part of a value.
_EACH = (
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "propertyNames",
)
_EACH_IN_OBJECTS = ("patternProperties",)
# Keywords whose subschemas apply to one part of a value each.
_PART_IN_LISTS = ("items", "prefixItems")
_PART_IN_OBJECTS = ("properties",)
# For `unevaluated...` keywords, the validator evaluates the neighbouring subschemas again, and
# recursively those of every subschema that has such a keyword.
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_TIMES_UNEVALUATED = 3
_MAX_LOOKUPS = 1_000_000
_DATA = ("enum", "const", "default", "examples")  # they hold values, no subschemas


def too_much(schema: dict[str, Any]) -> bool:
    """Return whether a value could be tried on more than `MAX_TRIALS` subschemas.

    The count covers the value, one part of it, and one part of that part. Any JSON object may be
    passed, whether it is a schema or not.
    """
    document = _Document(schema)
    return document.lookups > _MAX_LOOKUPS or document.most > MAX_TRIALS


def trials(schema: dict[str, Any]) -> int:
    """Return how many subschemas a value is tried on, counted up to just above `MAX_TRIALS`.

    The count covers the value, one part of it, and one part of that part.
    """
    return _Document(schema).most


def is_soon_explained(schema: dict[str, Any], value: Any) -> bool:
    """Return whether a value's errors hold at most about `MAX_COPIED_PARTS` parts of the value.

    `schema` must not be `too_much`.
    """
    document = _Document(schema)
    if not document.has_alternatives:
        return True
    parts, depth = _size(value)
    most = document.most
    trials: int = most ** (min(depth, 64) if document.is_circular else 1)
    return parts * depth * trials * document.most_listed(parts) <= MAX_COPIED_PARTS


def id_problem(schema: dict[str, Any]) -> str | None:
    """Return what is wrong with the `$id`s of a schema, or None.

    The validator fails on an `$id` that two subschemas share. To join many of them to a long one
    takes the square of their lengths.
    """
    ids: set[str] = set()
    unvisited: list[tuple[Any, str]] = [(schema, "")]
    while unvisited:
        node, base = unvisited.pop()
        if isinstance(node, list):
            unvisited.extend((child, base) for child in node)
        elif isinstance(node, dict):
            name = _id(node)
            if name and not name.startswith("#"):
                base = _joined(base, name)
                if len(base) > MAX_ID_CHARS:
                    return f"has an $id of more than {MAX_ID_CHARS} characters"
                if base in ids:
                    return f"has the $id {name} twice"
                ids.add(base)
            unvisited.extend((child, base) for key, child in node.items() if key not in _DATA)
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
    enums = (node.get("enum") for node in objects_in(schema))
    return sum(
        isinstance(choice, dict | list)
        for enum in enums
        if isinstance(enum, list)
        for choice in enum
    )


class _Document:
    """A schema, all objects in it, and the targets of its references."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.nodes = list(objects_in(schema))
        inner = [node for node in self.nodes if isinstance(node.get("$id"), str)]
        roots = [schema, *(node for node in inner if node is not schema)]
        self._roots = [(_id(node), node) for node in roots]
        self._anchors: dict[str, list[dict[str, Any]]] = {}
        for node in self.nodes:
            for name in _ANCHORS:
                if isinstance(node.get(name), str):
                    self._anchors.setdefault(node[name], []).append(node)
        self._trials: dict[int, int] = {}
        self.is_circular = False  # set while `most` is computed

    @property
    def has_alternatives(self) -> bool:
        """Whether the validator would list the errors of several subschemas."""
        return any(name in node for node in self.nodes for name in ("anyOf", "oneOf"))

    @property
    def most(self) -> int:
        """The highest number of trials of any object in the schema.

        A schema that is nested too deep to be counted has too many.
        """
        try:
            return max(map(self.trials, self.nodes))
        except RecursionError:
            return MAX_TRIALS + 1

    def most_listed(self, parts: int) -> int:
        """Return the most errors that one object of the schema can have for one value.

        The value has `parts` parts. There is one error for each name that is required, or that is
        not allowed. An error of an `enum` holds the whole `enum`, and counts as many.
        """
        return 1 + max(
            _errors_listed(node) + (parts if "propertyNames" in node else 0) for node in self.nodes
        )

    @property
    def lookups(self) -> int:
        """The most places that are searched for the targets of its references."""
        places = max(len(self._roots), *map(len, self._anchors.values()), 0)
        return places * sum(name in node for node in self.nodes for name in _REFERENCES)

    def trials(self, node: dict[str, Any]) -> int:
        """Return how many subschemas one value is tried on, counted up to just above `MAX_TRIALS`.

        The count covers the value, one part of it, and one part of that part. The object itself is
        one of the subschemas; a circle counts once.
        """
        count = self._trials.get(id(node))
        if count is None:
            self._trials[id(node)] = 0
            one_part = _subschemas(node, (), _PART_IN_LISTS, _PART_IN_OBJECTS)
            each_part = _subschemas(node, _EACH, (), _EACH_IN_OBJECTS)
            count = 1 + max(map(self.trials, one_part), default=0)
            count += sum(map(self.trials, each_part))
            times = _TIMES_UNEVALUATED if any(name in node for name in _UNEVALUATED) else 1
            count += times * sum(map(self.trials, self._beside_value(node)))
            count = self._trials[id(node)] = min(MAX_TRIALS + 1, count)
        self.is_circular = self.is_circular or not count
        return count

    def _beside_value(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the subschemas that the same value is tried on."""
        yield from _subschemas(node, _SINGLE, _IN_LISTS, _IN_OBJECTS)
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
                target = _pointed_at(root, path)
                if isinstance(target, dict):
                    yield target


def _errors_listed(node: dict[str, Any]) -> int:
    lists = [node.get("required"), node.get("enum")]
    for name in ("dependentRequired", "dependencies"):
        if isinstance(dependencies := node.get(name), dict):
            lists += dependencies.values()
    return sum(len(names) for names in lists if isinstance(names, list))


def _id(node: dict[str, Any]) -> str:
    return name.rstrip("#") if isinstance(name := node.get("$id"), str) else ""


def _subschemas(
    node: dict[str, Any], single: Iterable[str], in_lists: Iterable[str], in_objects: Iterable[str]
) -> Iterator[dict[str, Any]]:
    children = [node.get(name) for name in single]
    for name in in_lists:
        if isinstance(items := node.get(name), list):
            children += items
    for name in in_objects:
        if isinstance(members := node.get(name), dict):
            children += members.values()
    yield from (child for child in children if isinstance(child, dict))


def _size(value: Any) -> tuple[int, int]:
    """Return how many parts a value has, and how deep they are nested."""
    parts, depth, level = 0, 0, [value]
    while level:
        parts, depth = parts + len(level), depth + 1
        level = [
            part
            for node in level
            if isinstance(node, dict | list)
            for part in (node.values() if isinstance(node, dict) else node)
        ]
    return parts, depth


def _pointed_at(root: Any, path: Iterable[str]) -> Any:
    """Return the target of a JSON pointer (RFC 6901) given as its parts, or None."""
    target = root
    for name in path:
        if isinstance(target, dict):
            target = target.get(name)
        elif isinstance(target, list):
            target = _item(target, name)
        else:
            return None
    return target


def _item(items: list[Any], name: str) -> Any:
    is_number = name.isascii() and name.isdecimal() and len(name) <= len(str(len(items)))
    is_index = is_number and str(int(name)) == name and int(name) < len(items)
    return items[int(name)] if is_index else None
