"""Makes sure that the packages which a program is about to import are docllm's own.

These names are common: a `schemas` folder or a `producer.py` in the current folder or on PYTHONPATH
would be imported first. So programs run this file by its path before they import these packages,
and this file imports none of them.

Tested by tests/integration/versions/test_own_packages.py.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
# A file that tells another copy of docllm from a stranger's package.
_MARKS = {"schemas": "runtime/starting.py", "producer": "cli/running.py", "agent": "cli/parser.py"}
_USAGE = 2  # exit code


def require_own(*names: str) -> None:
    """Exit if a package is not docllm's; warn if it belongs to another copy of docllm."""
    for name in names:
        file = _foreign(name)
        if file is None:
            continue
        fault = f"Python takes the package {name!r} from {str(file)!r}, not from {str(_ROOT)!r}"
        if (file.parent / _MARKS[name]).is_file():
            _say(f"docllm: warning: {fault}: two copies of docllm are mixed")
            continue
        _say(
            f"docllm: {fault}, and cannot start. Rename that file, or take its folder off "
            "Python's path: unset PYTHONPATH if it names the folder; if it is the current folder, "
            "run `docllm` or `python -P -m producer`."
        )
        sys.exit(_USAGE)


def warn_of(name: str) -> None:
    """Warn where a package that this program does not import is a stranger's."""
    file = _foreign(name)
    if file is not None and not (file.parent / _MARKS[name]).is_file():
        _say(
            f"docllm: warning: `python -m {name}` would run {str(file)!r}, which is not docllm's: "
            f"rename that file, or run `docllm {name}` or `python -P -m {name}`"
        )


def _foreign(name: str) -> Path | None:
    """Return the file of the package if it lies elsewhere; None also where there is none."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).resolve()
    return None if file.parent == _ROOT / name else file


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text + "\n")
