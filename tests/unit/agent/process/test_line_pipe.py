"""Lines of a child arrive whole, and reading them never waits."""

import os

from docllm.agent.process.child_process import LINE_BYTES, LinePipe


def test_lines_arrive_whole() -> None:
    """Half a line is kept until the rest of it comes."""
    reads, writes = os.pipe()
    pipe = LinePipe(reads)
    assert pipe.lines() == []

    os.write(writes, b"one\ntw")
    assert pipe.lines() == [b"one"]
    os.write(writes, b"o\n")
    assert pipe.lines() == [b"two"]

    os.write(writes, b"three\nrest")
    os.close(writes)
    assert pipe.close() == [b"three", b"rest"]
    assert not pipe.open


def test_a_closed_end_is_noticed() -> None:
    """A child that closed its end is asked no more."""
    reads, writes = os.pipe()
    pipe = LinePipe(reads)
    os.close(writes)

    assert (pipe.lines(), pipe.open, pipe.close()) == ([], False, [])


def test_a_writer_that_lives_on_is_not_waited_for() -> None:
    """A process that the child started may hold the other end open."""
    reads, writes = os.pipe()
    pipe = LinePipe(reads)
    os.write(writes, b"last")

    assert pipe.close() == [b"last"]
    os.close(writes)


def test_a_line_without_an_end_fills_no_memory() -> None:
    """A handler that prints without line ends is passed on in parts."""
    reads, writes = os.pipe()
    pipe, got = LinePipe(reads), 0
    for _ in range(2 * LINE_BYTES // 4096):
        os.write(writes, b"x" * 4096)
        got += sum(map(len, pipe.lines()))
    os.close(writes)

    assert got >= LINE_BYTES
    assert got + sum(map(len, pipe.close())) == 2 * LINE_BYTES
