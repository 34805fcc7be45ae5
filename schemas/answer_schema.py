"""How much work a JSON Schema makes.

Subschemas of `anyOf` and its like are all tried on the same value, and each may refer to others that do the same, for that value or for
a part of it: thirty definitions of which each names the next one twice are a billion trials. The validator remembers what it tried of a
schema that leads back to itself, but not why it failed: it lists the errors of each alternative, of each of its parts, with a copy of
the part in each.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from schemas.patterns import objects_in

MOST = 100_000
MOST_COPIED = 300_000
MOST_COMPOSITE = 1_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_LISTS, _ONES, _NAMED = ("allOf", "anyOf", "oneOf"), ("not", "if", "then", "else"), ("dependentSchemas", "dependencies")
# What may hold for each part of a value, and what holds for one of them.
_EACH = ("additionalProperties", "unevaluatedProperties", "items", "additionalItems", "unevaluatedItems", "contains", "propertyNames")
_EACH_NAMED, _ONE_LISTS, _ONE_NAMED = ("patternProperties",), ("items", "prefixItems"), ("properties",)
# To see what was looked at, the validator goes through the subschemas beside it again, and so does each of these that asks the same.
_UNEVALUATED, _TIMES_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems"), 3
_MOST_LOOKUPS = 1_000_000
_DATA = ("enum", "const", "default", "examples")  # hold values, no subschemas


def too_much(schema: dict[str, Any]) -> bool:
    """Return whether a value, and one part of it, and one part of that, could be tried on more than `MOST` subschemas.

    Any JSON object may be asked about, whether it is a schema or not.
    """
    document = _Document(schema)
    return document.lookups > _MOST_LOOKUPS or document.most > MOST


def trials(schema: dict[str, Any]) -> int:
    """Return how many subschemas a value, a part of it, and a part of that are tried on.

    The count stops just above `MOST`.
    """
    return _Document(schema).most


def is_soon_explained(schema: dict[str, Any], value: Any) -> bool:
    """Return whether the errors of a value that does not fit hold about `MOST_COPIED` parts of it at most; `schema` is not `too_much`."""
    document = _Document(schema)
    if not document.has_alternatives:
        return True
    parts, depth = _size(value)
    most = document.most
    trials: int = most ** (min(depth, 64) if document.circles else 1)
    return parts * depth * trials * document.most_listed(parts) <= MOST_COPIED


def repeated_id(schema: dict[str, Any]) -> str | None:
    """Return an `$id` that two subschemas share, which makes the validator fail; None without one."""
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
    except ValueError:  # it is no URI, which the validator says better
        return name


def composite_choices(schema: dict[str, Any]) -> int:
    """Return how many lists and objects the enums of a schema hold; each is compared whole."""
    choices = (one for node in objects_in(schema) if isinstance(some := node.get("enum"), list) for one in some)
    return sum(isinstance(one, dict | list) for one in choices)


class _Document:
    """A schema, all objects in it, and where its references lead."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.nodes = list(objects_in(schema))
        inner = (node for node in self.nodes if node is not schema and isinstance(node.get("$id"), str))
        self._roots = [(_id(node), node) for node in (schema, *inner)]
        self._anchors: dict[str, list[dict[str, Any]]] = {}
        for node in self.nodes:
            for name in _ANCHORS:
                if isinstance(node.get(name), str):
                    self._anchors.setdefault(node[name], []).append(node)
        self._known: dict[int, int] = {}
        self.circles = False  # known when `most` is

    @property
    def has_alternatives(self) -> bool:
        """Return whether the validator would list the errors of several subschemas."""
        return any(name in node for node in self.nodes for name in ("anyOf", "oneOf"))

    @property
    def most(self) -> int:
        """Return the trials of the object in it that makes the most; what is nested too deep to be counted makes too many."""
        try:
            return max(map(self.trials, self.nodes))
        except RecursionError:
            return MOST + 1

    def most_listed(self, parts: int) -> int:
        """Return how many errors one object in it has of one value of so many parts: of each name that is required, or is not allowed.

        An error of an `enum` holds all of it, and counts as many.
        """
        return max(_listed(node) + (parts if "propertyNames" in node else 0) for node in self.nodes) + 1

    @property
    def lookups(self) -> int:
        """Return how many places at most are looked up for its references."""
        places = max(len(self._roots), *map(len, self._anchors.values()), 0)
        return places * sum(name in node for node in self.nodes for name in _REFERENCES)

    def trials(self, node: dict[str, Any]) -> int:
        """Return how many subschemas one value is tried on, one part of it, and one part of that, counted up to just above `MOST`.

        The object itself is one of them; a circle counts once.
        """
        known = self._known.get(id(node))
        if known is None:
            self._known[id(node)] = 0
            of_one_part = max(map(self.trials, _within(node, (), _ONE_LISTS, _ONE_NAMED)), default=0)
            of_each_part = sum(map(self.trials, _within(node, _EACH, (), _EACH_NAMED)))
            times = _TIMES_UNEVALUATED if any(name in node for name in _UNEVALUATED) else 1
            known = min(MOST + 1, 1 + of_one_part + of_each_part + times * sum(map(self.trials, self._beside(node))))
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
        """Yield what a reference may mean: of several documents in one, each is taken for its base."""
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(fragment, ())
            return
        path = [part.replace("~1", "/").replace("~0", "~") for part in unquote(fragment).split("/")[1:]]
        for name, root in self._roots:
            if not base or name.endswith(base):
                found = _at(root, path)
                if isinstance(found, dict):
                    yield found


def _listed(node: dict[str, Any]) -> int:
    by_name = [one for name in ("dependentRequired", "dependencies") if isinstance(some := node.get(name), dict) for one in some.values()]
    return sum(len(names) for names in (node.get("required"), node.get("enum"), *by_name) if isinstance(names, list))


def _id(node: dict[str, Any]) -> str:
    return name.rstrip("#") if isinstance(name := node.get("$id"), str) else ""


def _within(node: dict[str, Any], ones: Iterable[str], lists: Iterable[str], named: Iterable[str]) -> Iterator[dict[str, Any]]:
    found = [node.get(name) for name in ones]
    found += [one for name in lists if isinstance(some := node.get(name), list) for one in some]
    found += [one for name in named if isinstance(some := node.get(name), dict) for one in some.values()]
    yield from (one for one in found if isinstance(one, dict))


def _size(value: Any) -> tuple[int, int]:
    """Return of how many parts a value is, and how deep they are nested."""
    parts, depth, level = 0, 0, [value]
    while level:
        parts, depth = parts + len(level), depth + 1
        level = [part for one in level if isinstance(one, dict | list) for part in (one.values() if isinstance(one, dict) else one)]
    return parts, depth


def _at(root: Any, path: Iterable[str]) -> Any:
    """Return what the parts of a JSON pointer (RFC 6901) lead to, None for nothing."""
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
    is_index = name.isascii() and name.isdecimal() and len(name) <= len(str(len(items))) and str(int(name)) == name
    return items[int(name)] if is_index and int(name) < len(items) else None
