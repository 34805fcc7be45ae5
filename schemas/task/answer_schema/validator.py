"""Makes the validator of an answer's JSON Schema, at a bounded cost, once for each schema."""

from typing import Any

import jsonschema_rs
import orjson

from docllm.schemas.runtime.digest_cache import DigestCache
from docllm.schemas.task.answer_schema.patterns import (
    compiled_kb,
    excess_of_patterns,
    patterns_in,
    pieces,
)
from docllm.schemas.text.untrusted import contained, describe_error

# The limit for all patterns of a schema together. If a pattern has look-arounds or backreferences,
# the library compiles each of its pieces by itself.
_COMPILED_BYTES = 16 << 20
_MAX_STEPS_BACK = 10_000
_VALIDATORS: DigestCache[jsonschema_rs.Validator] = DigestCache(64 << 20)
# A validator takes several times the bytes of its schema.
_MIN_BYTES = 1_000
_TIMES_AS_WRITTEN = 8


def validator_of(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Return the validator of a schema; its errors call the value "the value".

    Nothing is fetched. Raises ValueError for a value that is no JSON Schema, refers to other
    documents, has patterns that take too much to compile, or makes the library fail.
    """
    try:
        packed = orjson.dumps(schema)
    except orjson.JSONEncodeError:
        return _compiled(schema)
    return _VALIDATORS.get(packed, lambda: (_compiled(schema), _size(schema, len(packed))))


def _compiled(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    if (excess := excess_of_patterns(schema)) is not None:
        raise ValueError(excess)
    limit_bytes = _COMPILED_BYTES // max(1, sum(map(pieces, patterns_in(schema))))
    options = jsonschema_rs.FancyRegexOptions(
        size_limit=limit_bytes, backtrack_limit=_MAX_STEPS_BACK
    )
    try:
        with contained():
            # The mask keeps a value's own text, which may be private and long, out of the errors.
            return jsonschema_rs.validator_for(
                schema, mask="the value", offline=True, pattern_options=options
            )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise ValueError(_first_line(str(error))) from None
    except MemoryError:
        raise  # it does not mean that the schema is wrong
    except Exception as error:
        raise ValueError(f"the validator fails on it ({describe_error(error)})") from error


def _size(schema: dict[str, Any], written_bytes: int) -> int:
    """Return approximately how many bytes the validator of a schema takes."""
    patterns_bytes = round(sum(map(compiled_kb, patterns_in(schema)))) << 10
    return _MIN_BYTES + _TIMES_AS_WRITTEN * written_bytes + patterns_bytes


def first_error(
    validator: jsonschema_rs.Validator, value: Any
) -> jsonschema_rs.ValidationError | None:
    """Return the first error of a value, or None.

    A list of all errors would hold a copy of the faulty part for each of them. Raises ValueError
    for a value that is nested too deep.
    """
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return error
    return None


def _first_line(text: str) -> str:
    line = " ".join(text.splitlines()[:1])
    if not line.endswith('is not a "regex"'):
        return line
    return f"{line[-180:]} that takes at most {_COMPILED_BYTES >> 20} MiB with the others"
