"""What a session of processes uses is read from /proc."""

import os
from pathlib import Path

from docllm.agent.process.use import Use, memory_of, use_of

PAGE = os.sysconf("SC_PAGE_SIZE")


def process(folder: Path, pid: int, session: int, pages: int, state: str = "S") -> None:
    fields = [state, "1", str(session), str(session), *["0"] * 17, str(pages), "0"]
    (folder / str(pid)).mkdir()
    (folder / str(pid) / "stat").write_text(f"{pid} (a ) name) {' '.join(fields)}\n")


def test_the_processes_of_a_session_are_added_up(tmp_path: Path) -> None:
    """Other sessions, zombies and other files do not count."""
    process(tmp_path, 10, 10, 3)
    process(tmp_path, 11, 10, 4)
    process(folder=tmp_path, pid=12, session=10, pages=100, state="Z")
    process(tmp_path, 20, 20, 5)
    process(tmp_path, 30, 30, 6)
    (tmp_path / "meminfo").write_text("")
    (tmp_path / "40").mkdir()

    assert use_of({10, 20, 50}, tmp_path) == {10: Use(7 * PAGE, 2), 20: Use(5 * PAGE, 1)}
    assert memory_of(11, tmp_path) == 4 * PAGE


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    """Other systems tell nothing, and nothing is limited there."""
    assert use_of({1}, tmp_path / "none") == {}
    assert memory_of(1, tmp_path / "none") == 0


def test_this_process_is_found() -> None:
    """The fields are those of the kernel."""
    session = os.getsid(0)

    assert use_of({session})[session].memory_bytes >= memory_of(os.getpid()) > 1 << 20
