"""Tries handlers in a process of their own, since importing a person's code may do anything."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import docllm
from docllm.schemas.settings.config import TypeConfig

TRIAL_S = 60.0
_PROGRAM = "docllm.agent.handlers.trial"
_OWN = "docllm."


def broken_handlers(types: Mapping[str, TypeConfig]) -> dict[str, str]:
    """Return, by type, why a handler cannot be used where an agent would start, if so."""
    paths = {
        name: settings.handler
        for name, settings in types.items()
        if settings.handler is not None and not settings.handler.startswith(_OWN)
    }
    if not paths:
        return {}
    reasons = _tried(sorted(set(paths.values())))
    return {name: reasons[path] for name, path in sorted(paths.items()) if path in reasons}


def _tried(paths: list[str]) -> dict[str, str]:
    """Import handlers as agents do; return why some cannot be used. What they print is dropped."""
    command = [sys.executable, "-P", "-m", _PROGRAM, *paths]
    root = str(Path(docllm.__file__).resolve().parents[1])
    folders = [os.environ.get("PYTHONPATH"), "" if root.endswith("-packages") else root]
    try:
        done = subprocess.run(  # noqa: S603 - a program of our own
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_S,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
        )
    except subprocess.TimeoutExpired:
        return dict.fromkeys(paths, f"its module is not imported within {TRIAL_S:.0f} s")
    except OSError as error:
        return dict.fromkeys(paths, f"it could not be tried: {error.strerror}")
    with suppress(ValueError, IndexError):
        answer = json.loads(done.stdout.splitlines()[-1])
        return {path: str(answer[path]) for path in paths if path in answer}
    return dict.fromkeys(paths, f"its module ends the program that imports it ({done.returncode})")
