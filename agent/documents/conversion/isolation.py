"""Takes from a converting process what no conversion needs, as far as the kernel can.

Native code parses the bytes of strangers here. Whoever takes it over must not read the agent's keys
in `/proc`, docllm's settings or other documents, nor reach a network or another program. Landlock
(Linux 5.13) permits reading the interpreter and its libraries alone; a filter of system calls
refuses the rest. Without them nothing is taken, and nothing fails.
"""

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import docllm

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every processor
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# By Landlock's version, the newest first: how many of a file's, of TCP's and of the scopes' rights
# it knows. All of them are taken.
_KNOWN = ((6, (16, 2, 2)), (5, (16, 2)), (4, (15, 2)), (3, (15,)), (2, (14,)), (1, (13,)))
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share")
_FILES = ("/dev/null", "/dev/urandom", "/etc/ld.so.cache", "/etc/localtime")

# By processor, its number in filters and the calls to refuse: socket, execve, execveat, ptrace,
# process_vm_readv and _writev, io_uring_setup, which can open sockets, and pidfd_getfd.
_REFUSED = {
    "x86_64": (0xC000_003E, (41, 59, 322, 101, 310, 311, 425, 438)),
    "aarch64": (0xC000_00B7, (198, 221, 281, 117, 270, 271, 425, 438)),
}
_X32 = 0x4000_0000  # the same calls under other numbers
_LOAD, _IF_EQUAL, _IF_FROM, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _PROCESSOR = 0, 4  # where a call's description has them
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0001  # with EPERM


def isolate() -> None:
    """Limit this process for the rest of its life."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return
    libc = ctypes.CDLL(None)
    long = ctypes.c_ulong
    libc.prctl.argtypes = (ctypes.c_int, long, ctypes.c_void_p, long, long)
    libc.prctl(_SET_NO_NEW_PRIVS, 1, None, 0, 0)
    _restrict_files(libc)
    _refuse_calls(libc)


def _restrict_files(libc: ctypes.CDLL) -> None:
    version = _call(libc, _CREATE_RULESET, None, 0, 1)
    rights = next((rights for known, rights in _KNOWN if version >= known), ())
    attributes = struct.pack(f"={len(rights)}Q", *((1 << count) - 1 for count in rights))
    rules = _call(libc, _CREATE_RULESET, attributes, len(attributes), 0) if rights else -1
    if rules < 0:
        return
    for path in _readable():
        with suppress(OSError):  # this system has no such file
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)  # noqa: PTH112 - a text
            _call(libc, _ADD_RULE, rules, 1, struct.pack("=Qi", allowed, handle), 0)
            os.close(handle)
    _call(libc, _RESTRICT_SELF, rules, 0)
    os.close(rules)


def _call(libc: ctypes.CDLL, number: int, *arguments: int | bytes | None) -> int:
    longs = (ctypes.c_long(part) if isinstance(part, int) else part for part in arguments)
    return int(libc.syscall(ctypes.c_long(number), *longs))


def _readable() -> Iterator[str]:
    """Return the interpreter's files, Python's and the system's libraries, and docllm's packages.

    The folder of docllm's packages may hold settings, unless packages are installed in it.
    """
    package = Path(docllm.__file__).resolve().parent
    around = (package.parent, package.parent.parent)
    own = {str(path) for path in around if not path.name.endswith("-packages")}
    yield from (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    yield from (path for path in sys.path if path and os.path.realpath(path) not in own)
    # In a checkout the package links to folders beside it.
    yield from (os.path.realpath(package / name) for name in ("", "agent", "producer", "schemas"))
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    yield from _mapped_folders()
    yield from (*_LIBRARIES, *_FILES)


def _mapped_folders() -> Iterable[str]:
    """Return the folders of the libraries that are loaded, wherever this system keeps them."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return ()
    files = {line.split(maxsplit=5)[5] for line in lines if ".so" in line}
    return {os.path.dirname(file) for file in files if file.startswith("/")}  # noqa: PTH120 - a text


def _refuse_calls(libc: ctypes.CDLL) -> None:
    processor, calls = _REFUSED.get(os.uname().machine, (0, ()))
    if not calls:
        return
    # Each jump leads over what follows to the last instruction, which refuses.
    tests = [(_IF_FROM, _X32), *((_IF_EQUAL, call) for call in calls)]
    last = len(tests) + 3
    program = [
        (_LOAD, 0, 0, _PROCESSOR),
        (_IF_EQUAL, 0, last - 1, processor),
        (_LOAD, 0, 0, _NUMBER),
        *((test, last - at, 0, value) for at, (test, value) in enumerate(tests, 3)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    filters = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("@HP", len(program), ctypes.addressof(filters))
    libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, described, 0, 0)
