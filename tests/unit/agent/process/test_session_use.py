"""What a session of processes, or a thread, uses is read from /proc."""

import os
import threading
import time
from pathlib import Path

from docllm.agent.process.use import ThreadUse, Use, memory_of, thread_use, use_of

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


STAT = "17 (a) b) S 1 17 17 0 -1 4194304 900 0 12 0 250 50 0 0 20 0 3 0 100 0 0"


def written(folder: Path, stat: str, schedule: str) -> Path:
    (folder / "17").mkdir()
    (folder / "17" / "stat").write_text(stat)
    (folder / "17" / "schedstat").write_text(schedule)
    return folder


def test_the_kernels_files_are_read(tmp_path: Path) -> None:
    """The name of a command may hold brackets and blanks."""
    folder = written(tmp_path, STAT, "3000000000 1500000000 9\n")

    use = thread_use(17, folder)

    assert use is not None
    assert (use.ready_s, use.faults) == (1.5, 12)
    assert use.cpu_s > 0


def test_a_system_that_does_not_tell_is_no_error(tmp_path: Path) -> None:
    """Only Linux has these files, and some containers hide them."""
    assert thread_use(17, tmp_path) is None
    assert thread_use(17, written(tmp_path, "17 (a) S 1", "")) is None


def test_a_thread_that_computes_uses_a_processor() -> None:
    """The fields are those that Linux means by them."""
    before = thread_use(threading.get_native_id())
    began_s = time.thread_time()
    while time.thread_time() - began_s < 0.1:
        pass
    now = thread_use(threading.get_native_id())

    assert isinstance(before, ThreadUse)
    assert isinstance(now, ThreadUse)
    assert 0.05 <= now.cpu_s - before.cpu_s < 10
    assert now.ready_s >= before.ready_s
