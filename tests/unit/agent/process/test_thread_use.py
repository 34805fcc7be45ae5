"""What a thread has used is read from the kernel."""

import threading
import time
from pathlib import Path

from docllm.agent.process.use import ThreadUse, thread_use

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
