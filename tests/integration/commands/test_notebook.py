"""A notebook in a Jupyter kernel, and DataFrames of pandas and polars."""

import subprocess
from pathlib import Path

import pytest

from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import until
from tests.integration.support.readers import ROOT, readers
from tests.integration.versions.test_installed import SHELL

NOTEBOOK = ROOT / "examples/notebook/invoices.ipynb"
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text") or output["data"]["text/plain"])
"""
KILL = """
import sys
import nbformat
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()
for cell in nbformat.read(sys.argv[1], as_version=4).cells:
    if cell.cell_type == "code":
        client.execute(cell.source)
sys.stdin.readline()
client.stop_channels()
manager.shutdown_kernel(now=True)  # by SIGKILL
"""
FRAMES = """
import pandas as pd
import polars as pl
import docllm

index = pd.Index([7, 8, 9], name="number")
frame = pd.DataFrame({"text": ["a", None, float("nan")], "metadata.day": pd.Timestamp(0)}, index)
prompt = "Summarize: {document}"
batches = {
    "pandas": frame,
    "named": frame.rename_axis("key"),
    "polars": pl.DataFrame({"id": [7, 8], "text": ["a", None], "metadata.day": ["1970-01-01"] * 2}),
}
for name, rows in batches.items():
    batch = docllm.Batch(name, prompt=prompt, rows=rows, id="key" if name == "named" else None)
    submitted = batch.submit()
    print(name, submitted.loaded, [reject.row for reject in submitted.rejects])
    print([result.id for result in batch.results()], batch.to_pandas().loc["7", "status"])
try:
    docllm.Batch("lazy", prompt=prompt, rows=pl.LazyFrame({"id": [1]})).submit()
except Exception as error:
    print(error)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with these packages."""
    return readers(tmp_path_factory)


def run(deployment: Deployment, python: Path, script: str, *arguments: Path) -> list[str]:
    """Return the lines that a script prints."""
    done = subprocess.run(
        [python, "-c", script, *arguments],
        cwd=deployment.folder,
        env=environ(deployment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def environ(deployment: Deployment) -> dict[str, str]:
    """Return a user's environment, whose files are those of the deployment."""
    return SHELL | deployment.environ | {"HOME": str(deployment.folder)}


def test_the_example_runs(embedded: Deployment, python: Path) -> None:
    """Each answer is a model, and the table has each row."""
    printed = run(embedded, python, EXECUTE, NOTEBOOK)

    assert any("succeeded=40" in line and "done=True" in line for line in printed)
    assert any(line.startswith("invoice-40 ") for line in printed)


def test_a_killed_kernel_loses_nothing(embedded: Deployment, python: Path, tmp_path: Path) -> None:
    """The agent ends with it; the same cells in another kernel go on where it was."""
    slots = 2
    llm = embedded.llm("--latency", "0.3")
    cells = NOTEBOOK.read_text().replace("rehearsal=True", f"slots={slots}")
    notebook = tmp_path / "invoices.ipynb"
    notebook.write_text(cells)
    embedded.environ |= {"DOCLLM_LLM_BASE_URL": llm.url, "DOCLLM_LLM_MODEL": "rehearsal"}

    with subprocess.Popen(
        [python, "-c", KILL, notebook],
        cwd=embedded.folder,
        env=environ(embedded),
        stdin=subprocess.PIPE,
    ) as first:
        until(lambda: len(llm.calls()) >= 4, "the first calls")
        first.communicate(b"\n")
    assert first.returncode == 0
    before = len(llm.calls())
    printed = run(embedded, python, EXECUTE, notebook)

    assert before < 40
    assert any("succeeded=40" in line and "done=True" in line for line in printed)
    assert 40 <= len(llm.calls()) <= 40 + slots


def test_frames_of_pandas_and_polars_are_rows(embedded: Deployment, python: Path) -> None:
    """A missing text makes a bad row; the index, whatever it is called, has the ids."""
    assert run(embedded, python, FRAMES) == [
        "pandas 1 [2, 3]",
        "['7'] pending",
        "named 1 [2, 3]",
        "['7'] pending",
        "polars 1 [2]",
        "['7'] pending",
        "rows is a LazyFrame; give a list of dicts or a DataFrame",
    ]
