"""What packages load and hold: no client library on a record's path, and every data file."""

import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONVERTERS = ("docx", "docx_body", "docx_chunks", "html", "mail", "mail_text", "pdf")
SERVED = ("app", "gate", "metrics", "openai_door", "refusal", "server", "tasks")
IMPORT_ALL = """
import importlib, pkgutil, sys
packages, libraries, adapters = (text.split() for text in sys.argv[1:])
sys.modules.update(dict.fromkeys(libraries))  # an import of them fails, as if not installed
names = list(packages)
for package in packages:
    path = getattr(importlib.import_module(package), "__path__", ())
    names += [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
for name in set(names) - set(adapters):
    importlib.import_module(name)
print(len(names), *(name for name in libraries if sys.modules[name]))
"""


def test_the_path_of_a_record_is_imported_where_no_client_library_is_installed() -> None:
    """Every module that the import contract names is imported in a fresh interpreter.

    The child process for large JSON is among them: it loads only what its calls need.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [entry for entry in contracts if entry["name"].startswith("The path of a record")]
    libraries = [name for name in contract["forbidden_modules"] if "." not in name]
    adapters = [line.partition(" -> ")[0] for line in contract["ignore_imports"]]
    packages = contract["source_modules"]
    assert "docllm.agent.handlers" in packages
    assert {"sqlalchemy", "pymysql", "redis", "confluent_kafka", "alembic"} < set(libraries)

    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *map(" ".join, (packages, libraries, adapters))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    count, *loaded = done.stdout.split()
    assert (int(count) > 40, loaded) == (True, [])


def test_all_programs_are_imported_where_no_extra_is_installed() -> None:
    """The libraries of extras are imported when they are used, most of them in processes."""
    libraries = (
        "obstore opentelemetry pypdf pypdfium2 python_multipart requests selectolax starlette "
        "uvicorn"
    )
    converters = " ".join(f"docllm.agent.documents.conversion.{name}" for name in CONVERTERS)
    served = " ".join(f"docllm.producer.serve.{name}" for name in SERVED)
    adapters = f"{converters} {served} docllm.producer.tracing.otlp"

    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, "docllm", libraries, adapters],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    count, *loaded = done.stdout.split()
    assert (int(count) > 400, loaded) == (True, [])


def test_every_file_that_is_no_module_is_packaged() -> None:
    """The patterns of `package-data` find each script, schema and template."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    patterns = tools["setuptools"]["package-data"]["*"]
    data = [
        path.relative_to(ROOT).as_posix()
        for package in ("agent", "docllm", "producer", "schemas")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    ]

    assert {path.rpartition(".")[2] for path in data} >= {"lua", "json", "pyi", "typed"}
    assert [
        path for path in data if not any(fnmatch(path, f"*{pattern}") for pattern in patterns)
    ] == []
