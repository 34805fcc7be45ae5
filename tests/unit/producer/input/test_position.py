"""How far an input has been read, also while it is packed."""

import gzip
import io
from pathlib import Path

import pytest

from docllm.producer.input.lines import Position, read_lines

LINE = b'{"id": "%d", "prompt": "p"}\n'


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_position_goes_from_nothing_to_the_size_of_the_file(tmp_path: Path, name: str) -> None:
    """A packed file counts as it is on disk, and the end is the end."""
    path, position = tmp_path / name, Position()
    text = b"".join(LINE % number for number in range(200_000))
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    size = path.stat().st_size
    assert (position.done, position.total) == (0, None)

    places = []
    for number, _ in enumerate(read_lines(str(path), stdin=io.BytesIO(), position=position)):
        if number % 20_000 == 0:
            places.append(position.done)

    assert position.total == position.done == size
    assert places == sorted(places)
    assert 0 < places[1] < size / 2 < places[-1] <= size


def test_a_stream_has_no_end() -> None:
    """Nobody knows how much a pipe will bring."""
    position = Position()

    assert len(list(read_lines("-", stdin=io.BytesIO(LINE % 1), position=position))) == 1
    assert (position.done, position.total) == (0, None)
