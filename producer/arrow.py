"""The library of Parquet and Zstandard, which is an extra."""

import importlib
from importlib.util import find_spec
from typing import Any

from docllm.schemas.errors import ConfigError

INSTALL = "pip install '.[archive]' in the clone of docllm"
_NEEDS = f"needs the extra `archive`; run: {INSTALL}"


def has_arrow() -> bool:
    """Return whether the library is installed."""
    return find_spec("pyarrow") is not None


def require_arrow(what: str) -> None:
    """Raise ConfigError if the library is not installed; `what` needs it."""
    if not has_arrow():
        raise ConfigError(f"{what} {_NEEDS}")


def arrow(what: str) -> tuple[Any, Any]:
    """Return the modules `pyarrow` and `pyarrow.parquet`. Raises what `require_arrow` raises."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(f"{what} {_NEEDS}") from None
