"""The input of `load`: unreadable ones, ones that cannot be stored, and pauses."""

import io
import os
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from docllm.producer.cli.load.input import Conversions, Input
from docllm.producer.cli.parser import parser
from docllm.producer.input.lines import ValidLine
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.sources import load_config
from tests.support.doubles import double_of

LINE = b'{"id":"%d","prompt":"x"}\n'


def given(folder: Path, stack: ExitStack, *arguments: str) -> Input:
    return Input(
        load_config(flags={}, environ={}, cwd=folder),
        options=parser().parse_args(["load", *arguments]),
        stack=stack,
        conversions=double_of(Conversions, open=None),
    )


def slowly(pipe: int, lines: int) -> None:
    for number in range(lines):
        os.write(pipe, LINE % number)
        time.sleep(0.01)
    os.close(pipe)


@pytest.mark.parametrize("spooled", [False, True])
def test_a_pause_of_standard_input_is_not_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, spooled: bool
) -> None:
    """A pause of standard input is not its end.

    The program's parent may have made the pipe non-blocking. The load used to end with success at
    the first pause, without the rest.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    writer = threading.Thread(target=slowly, args=(writing, 5))
    with os.fdopen(reading, encoding="utf-8") as stdin, ExitStack() as stack:
        monkeypatch.setattr(sys, "stdin", stdin)
        source = given(tmp_path, stack, "-")
        writer.start()
        if spooled:
            source.spool()
        keys = [line.key for line in source.lines() if isinstance(line, ValidLine)]
        writer.join()

    assert keys == ["0", "1", "2", "3", "4"]


def test_an_input_that_cannot_be_looked_at_is_a_usage_error(tmp_path: Path) -> None:
    """A name that is too long, or in a folder that may not be entered, is a usage error.

    Both used to end with a traceback.
    """
    with (
        ExitStack() as stack,
        pytest.raises(ConfigError, match="cannot be read: File name too long"),
    ):
        given(tmp_path, stack, "n" * 300, "--batch", "b").lines()


def test_a_folder_is_told_from_a_file_of_lines(tmp_path: Path) -> None:
    """Who gives a folder has documents, and the error has the command for them."""
    folder = tmp_path / "my reports"
    folder.mkdir()

    with (
        ExitStack() as stack,
        pytest.raises(ConfigError, match=f"it is a folder; .*--documents '{folder}' --prompt "),
    ):
        given(tmp_path, stack, str(folder)).lines()


def test_a_place_to_keep_a_pipe_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If a pipe cannot be stored, the error asks for another temporary folder.

    A container may have no writable folder.
    """
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE % 1)))

    with (
        ExitStack() as stack,
        pytest.raises(
            ConfigError,
            match=r"^- cannot be copied: No usable temporary .*; name another folder with TMPDIR$",
        ),
    ):
        given(tmp_path, stack, "-").spool()


def test_a_pipe_that_cannot_be_read_is_not_a_matter_of_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable pipe and a full temporary folder have different errors."""
    with (
        os.fdopen(os.open(os.devnull, os.O_WRONLY), encoding="utf-8") as stdin,
        ExitStack() as stack,
    ):
        monkeypatch.setattr(sys, "stdin", stdin)

        with pytest.raises(ConfigError, match=r"^- cannot be read: Bad file descriptor$"):
            given(tmp_path, stack, "-").spool()


def test_an_input_that_is_not_read_to_its_end_is_closed(tmp_path: Path) -> None:
    """A load that stopped at bad lines left it to the collector, which warned of the open file."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"".join(LINE % number for number in range(9)))

    with ExitStack() as stack:
        lines = given(tmp_path, stack, str(path)).lines()
        assert isinstance(next(lines), ValidLine)
    assert list(lines) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--documents", "a.txt", "b.txt", "--prompt", "{document}"],
        ["--documents", "a.txt", "b.txt", "c.txt", "--prompt", "{document}"],
    ],
)
def test_a_pattern_that_the_shell_expanded_is_answered_with_how_to_quote_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
) -> None:
    """Without quotes, the shell puts the documents' names in the place of the pattern."""
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        Path(f"{name}.txt").write_text("text")

    with ExitStack() as stack, pytest.raises((ConfigError, SystemExit)) as refused:
        given(tmp_path, stack, *arguments)

    assert "quote the pattern, as in" in f"{refused.value}{capsys.readouterr().err}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.jsonl", "--map", "id=a"], "for tables (CSV, Parquet), and a.jsonl ends with .jsonl"),
        (["a.json.gz", "--number-rows"], "a.json.gz ends with .json; leave them out"),
        (["a.csv", "--map", "id=a", "--map", "idd=b"], "--map: 'idd' is no field"),
        (["a.csv", "--map", "id=a", "--map", "id=b"], "--map: id has two columns"),
        (["a.csv", "--by-uri"], "--by-uri can be given with --documents only"),
        (["a.csv", "--prompt", "no place"], "--prompt has no {document}"),
        (
            ["a.jsonl", "--prompt", "x {document}"],
            "--prompt can be given with --documents or a table (CSV, Parquet) only; a task line",
        ),
        (
            ["--documents", "d", "--prompt", "{document}", "--map", "id=a"],
            "--map can be given with a table (CSV, Parquet) only",
        ),
    ],
)
def test_options_must_fit_the_form_of_the_input(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    """Each error names the option and where it belongs."""
    with ExitStack() as stack, pytest.raises(ConfigError) as refused:
        given(tmp_path, stack, *arguments)

    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["a.csv", "a.TSV.gz", "a.parquet", "-"])
def test_rows_are_counted_as_rows(tmp_path: Path, name: str) -> None:
    """A table is known by its name, or by --map."""
    more = ["--batch", "b"] if name != "-" else ["--map", "id=a", "--batch", "b"]
    with ExitStack() as stack:
        assert given(tmp_path, stack, name, *more).noun == "row"
