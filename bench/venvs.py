"""Python environments for other people's programs, kept beside the downloaded servers."""

import os
import subprocess
import venv

from tests.servers.cache import appears, cache


def python_with(name: str, *requirements: str) -> str:
    """Return the interpreter of an environment with these packages; make it if there is none."""
    made = cache() / "venvs" / name
    if not made.exists():
        with appears(made) as place:
            venv.create(place, with_pip=True)
            pip = [str(place / "bin/python"), "-m", "pip", "install", "--quiet"]
            subprocess.run(  # noqa: S603 - a fixed command
                [*pip, "--disable-pip-version-check", *requirements],
                check=True,
                env=dict(os.environ),
            )
    return str(made / "bin/python")
