"""Makes the data folder and its files for their owner alone.

They hold prompts and answers in clear text. Only new files and folders get these modes. An existing
folder keeps its mode, which somebody chose; if others may enter it, a warning is logged.
"""

import logging
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path

from docllm.schemas.codes import Code

FOLDER_MODE = 0o700
FILE_MODE = 0o600

log = logging.getLogger(__name__)
_making = threading.Lock()


def make_folder(path: Path) -> None:
    """Make a folder that nobody else may enter, unless it exists. Raises OSError."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file that nobody else may open, unless it exists.

    SQLite gives the files beside a database the mode of the database. Errors are ignored here,
    because opening the file next reports them. An existing file is never opened: closing it would
    drop the locks that SQLite holds on it in this process. The mutex keeps another thread from
    opening the file in between.
    """
    with _making, suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))


def warn_of_others(folder: Path) -> None:
    """Log a warning if other users of the machine may enter or list the folder."""
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        log.warning(
            "other users of this machine may read %s, which holds prompts and answers; run: "
            "chmod -R go= %s",
            folder,
            folder,
            extra={"code": Code.FOLDER_OPEN},
        )
