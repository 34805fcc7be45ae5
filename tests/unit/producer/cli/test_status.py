"""`status` as a command."""

from pathlib import Path

import pytest

from tests.support.commands import run


def test_status_of_a_folder_without_a_ledger_says_where_it_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` without a ledger names the folder it looked in.

    An embedded ledger lies in the folder, so a person in another folder sees no batch.
    """
    assert run(tmp_path, "status") == 0

    assert capsys.readouterr().err == f"looked in {tmp_path / 'docllm-data'}\n"
