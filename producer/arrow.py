"""The library of Parquet, which is an extra."""

import importlib
from importlib.util import find_spec
from typing import Any

from docllm.schemas.errors import ConfigError

_INSTALL = "needs the extra `archive`; run: pip install 'docllm[archive]'"


def require_arrow(what: str) -> None:
    """Raise ConfigError if the library is not installed; `what` needs it."""
    if find_spec("pyarrow") is None:
        raise ConfigError(f"{what} {_INSTALL}")


def arrow(what: str) -> tuple[Any, Any]:
    """Return the modules `pyarrow` and `pyarrow.parquet`. Raises what `require_arrow` raises."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(f"{what} {_INSTALL}") from None
