"""How much work a JSON Schema makes of one value, counted without a value.

Subschemas of `anyOf` and its like are all tried on the same value, and each may refer to others that do the same: thirty definitions of
which each names the next one twice are a billion trials. What holds for the parts of a value (`properties`, `items`) is counted for
itself, since a value has only so many parts.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

MOST = 10_000
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_LISTS, _ONES, _NAMED = ("allOf", "anyOf", "oneOf"), ("not", "if", "then", "else"), ("dependentSchemas", "dependencies")
_MOST_LOOKUPS = 1_000_000


def too_much(schema: dict[str, Any]) -> bool:
    """Return whether a value could be tried on more than `MOST` subschemas at one place."""
    document = _Document(schema)
    if document.lookups > _MOST_LOOKUPS:
        return True
    try:
        return any(document.trials(node) > MOST for node in document.nodes)
    except RecursionError:
        return True


class _Document:
    """A schema, all objects in it, and where its references lead."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.nodes = list(_objects(schema))
        self._roots = [schema, *(node for node in self.nodes if node is not schema and isinstance(node.get("$id"), str))]
        self._anchors: dict[str, list[dict[str, Any]]] = {}
        for node in self.nodes:
            for name in _ANCHORS:
                if isinstance(node.get(name), str):
                    self._anchors.setdefault(node[name], []).append(node)
        self._known: dict[int, int] = {}

    @property
    def lookups(self) -> int:
        """Return how many places at most are looked up for its references."""
        return len(self._roots) * sum(name in node for node in self.nodes for name in _REFERENCES)

    def trials(self, node: dict[str, Any]) -> int:
        """Return how many subschemas one value is tried on, itself included, counted up to just above `MOST`; a circle counts once."""
        known = self._known.get(id(node))
        if known is None:
            self._known[id(node)] = 0
            known = min(MOST + 1, 1 + sum(map(self.trials, self._beside(node))))
            self._known[id(node)] = known
        return known

    def _beside(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the subschemas that the same value is tried on."""
        found = [node.get(name) for name in _ONES]
        found += [one for name in _LISTS if isinstance(some := node.get(name), list) for one in some]
        found += [one for name in _NAMED if isinstance(some := node.get(name), dict) for one in some.values()]
        yield from (one for one in found if isinstance(one, dict))
        for name in _REFERENCES:
            if isinstance(reference := node.get(name), str):
                yield from self._targets(reference)

    def _targets(self, reference: str) -> Iterator[dict[str, Any]]:
        """Yield what a reference may mean: of several documents in one, each is taken for its base."""
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            yield from self._anchors.get(fragment, ())
            return
        for root in self._roots:
            if not base or str(root.get("$id", "")).rstrip("#").endswith(base):
                found = _at(root, fragment)
                if isinstance(found, dict):
                    yield found


def _objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _at(root: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) leads to, None for nothing."""
    found = root
    for part in unquote(pointer).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list):
            found = dict(zip(map(str, range(len(found))), found, strict=True)).get(name)
        else:
            return None
    return found
