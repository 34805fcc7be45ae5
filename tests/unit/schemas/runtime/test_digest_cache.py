"""A cache of limited size."""

from typing import Any

import jsonschema_rs
import pytest

from docllm.schemas.runtime.digest_cache import DigestCache
from docllm.schemas.task.answer_schema import validator
from docllm.schemas.task.answer_schema.validator import validator_of


def test_cached_objects_are_not_made_again() -> None:
    """Cached objects are not made again; without room, the least recently used go first."""
    made: list[bytes] = []

    def get(value: bytes, size: int = 1) -> int:
        return cache.get(value, lambda: (made.append(value) or len(made), size))  # type: ignore[func-returns-value]

    cache: DigestCache[int] = DigestCache(2)

    assert [get(b"a"), get(b"b"), get(b"a")] == [1, 2, 1]
    assert [get(b"c"), get(b"a"), get(b"b")] == [3, 1, 4]
    assert get(b"large", 3) == 5
    assert [get(b"a"), get(b"b"), get(b"large", 3)] == [1, 4, 6]


def test_a_failure_is_not_cached() -> None:
    """A failure is not cached, because it may pass."""
    cache: DigestCache[int] = DigestCache(2)

    def fail() -> tuple[int, int]:
        raise MemoryError

    with pytest.raises(MemoryError):
        cache.get(b"a", fail)
    assert cache.get(b"a", lambda: (7, 1)) == 7


def test_a_schema_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema is compiled once.

    A batch of a million tasks has one schema, and each attempt used to compile it twice.
    """
    compiled: list[object] = []
    real = jsonschema_rs.validator_for

    def validator_for(schema: Any, **rest: Any) -> jsonschema_rs.Validator:
        compiled.append(schema)
        return real(schema, **rest)

    monkeypatch.setattr(jsonschema_rs, "validator_for", validator_for)

    for _ in range(3):
        assert validator_of({"title": "compiled once", "minimum": 3}).is_valid(4)
        assert not validator_of({"title": "compiled once", "minimum": 5}).is_valid(4)

    assert len(compiled) == 2


def test_patterns_that_take_much_memory_are_not_kept_for_ever() -> None:
    """Large patterns leave the cache: a repeated class of letters takes 50 KB each time."""
    size = validator._size({"pattern": r"\pL{200}"}, 30)

    assert 5 << 20 < size < 20 << 20
