"""What users have beside docllm, such as pandas, polars and notebooks, in an environment."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.integration.versions.test_installed import UV, once

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements-readers.lock"


def readers(factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with these packages, which finds docllm too."""

    def install(folder: Path) -> None:
        environment = folder / "venv"
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, environment], check=True)
        python = environment / "bin/python"
        subprocess.run(
            [UV, "pip", "install", "--quiet", "--python", python, "--requirement", LOCK], check=True
        )
        (packages,) = environment.glob("lib/python*/site-packages")
        behind = (str(ROOT), sysconfig.get_path("purelib"))
        (packages / "docllm.pth").write_text("\n".join(behind) + "\n")

    return once(factory, "readers", install) / "venv/bin/python"
