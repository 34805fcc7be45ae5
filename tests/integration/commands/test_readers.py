"""Exported tables in the hands of others: pandas, DuckDB and Hugging Face `datasets`."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pytest

from docllm.producer.ledger.results.tables import (
    CsvFile,
    FlatTable,
    JsonFile,
    ParquetFile,
    Table,
    TableFile,
)
from tests.integration.support.readers import readers
from tests.integration.versions.test_installed import SHELL

FILES: Mapping[str, Callable[[BinaryIO], TableFile]] = {
    "csv": CsvFile,
    "parquet": ParquetFile,
    "jsonl": JsonFile,
}
ANSWERS = ({"party": "Müller, Söhne", "total": 5}, {"party": "=x\n", "total": 7.5}, None)
READ = """
import datasets
import duckdb
import pandas

datasets.disable_progress_bars()
for name in ("plain", "flat"):
    frames = {
        "pandas csv": pandas.read_csv(f"{name}.csv"),
        "pandas parquet": pandas.read_parquet(f"{name}.parquet"),
        "pandas jsonl": pandas.read_json(f"{name}.jsonl", lines=True),
    }
    for ending in ("csv", "parquet", "jsonl"):
        kind = ending.removesuffix("l")
        frames[f"duckdb {ending}"] = duckdb.sql(f"SELECT * FROM '{name}.{ending}'").df()
        read = datasets.load_dataset(kind, data_files=f"{name}.{ending}", cache_dir="cache")
        frames[f"datasets {ending}"] = read["train"].to_pandas()
    for reader, frame in frames.items():
        assert list(frame["id"]) == ["a", "b", "c"], (reader, frame)
        assert frame["tokens_in"].sum() == 30, (reader, frame)
        assert frame["error.code"].isna().sum() == 2, (reader, frame)
        if name == "flat":
            formula = "'=x\\n" if reader.endswith("csv") else "=x\\n"
            assert list(frame["result.party"])[:2] == ["Müller, Söhne", formula], (reader, frame)
            assert list(frame["result.total"])[:2] == [5, 7.5], (reader, frame)
print(len(frames), "readers")
"""


def fields(key: str, result: Any) -> dict[str, Any]:
    """Return the fields of a result line."""
    error = None if result else {"code": "BAD_OUTPUT", "message": "the answer is not JSON"}
    return {
        "id": key,
        "status": "succeeded" if result else "dead",
        "result": result and orjson.Fragment(json.dumps(result, ensure_ascii=False)),
        "error": error,
        "attempts": 1,
        "model": "m",
        "route": None,
        "tokens_in": 10,
        "tokens_out": 5,
        "cost": 0.5,
        "finished_at": "2027-01-31T18:00:00.120000Z",
    }


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of the readers' environment."""
    return readers(tmp_path_factory)


def test_pandas_duckdb_and_datasets_read_the_tables(python: Path, tmp_path: Path) -> None:
    """Each reads each format, flattened or not, with the same rows."""
    for ending, file_of in FILES.items():
        for name, table_of in {"plain": Table, "flat": FlatTable}.items():
            with (tmp_path / f"{name}.{ending}").open("wb") as file:
                table = table_of(file_of(file))
                for key, answer in zip("abc", ANSWERS, strict=True):
                    table.write(fields(key, answer))
                table.end()

    done = subprocess.run(
        [python, "-c", READ],
        cwd=tmp_path,
        env=SHELL | {"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "9 readers\n", done.stderr
