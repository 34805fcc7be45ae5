"""Python environments that are thrown away, for other people's programs."""

import os
import subprocess
import venv
from pathlib import Path


def python_with(folder: Path, requirement: str) -> str:
    """Return the interpreter of a new environment with this package."""
    place = folder / "venv"
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    subprocess.run(pip, check=True, env=dict(os.environ))  # noqa: S603 - a fixed command
    return python
