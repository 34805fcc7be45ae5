"""The end of a batch is told to a function, a server or a command, and each may fail."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.hooks.batch_hooks import load_batch_hook
from docllm.agent.hooks.functions import BatchEnd, Hooks, Tell
from docllm.agent.ledger.hook_runs import HookReturn
from docllm.agent.process.containment import new_event_loop
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.kinds import batch_hook
from docllm.schemas.task.hooks import OF_BATCHES
from tests.support.handlers import handlers_harness

END = BatchEnd(
    group="group",
    batch="reports",
    round=2,
    ended_at="2026-11-27T20:00:00Z",
    counts={"total": 3, "succeeded": 2, "dead": 1, "cancelled": 0},
    cost=None,
)
END_JSON = {
    "group": "group",
    "batch": "reports",
    "round": 2,
    "ended_at": "2026-11-27T20:00:00Z",
    "counts": {"total": 3, "succeeded": 2, "dead": 1, "cancelled": 0},
    "cost": None,
}
TOLD = HookReturn()
NAME = "batch reports, round 2"  # in the text of a failure
MODULE = """
told = []

async def note(end):
    told.append(end)

def plain(end):
    told.append(end)

def broken(end):
    raise ValueError("the queue is full")

def narrow():
    pass
"""


@dataclass
class Server:
    """A server that answers each request with a status."""

    status: int
    url: str = ""
    requests: list[bytes] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = [
            int(line.partition(b":")[2])
            for line in head.splitlines()
            if line.lower().startswith(b"content-length:")
        ]
        self.requests.append(head + await reader.readexactly(length))
        location = f"location: {self.url}/other?key=s3cret\r\n"
        text = f"HTTP/1.1 {self.status} Told\r\n{location}content-length: 0\r\n\r\n"
        writer.write(text.encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(status: int) -> AsyncIterator[Server]:
    """Yield a server on the loopback address."""
    server = Server(status)
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    async with listening:
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of a person, in the current folder."""
    (tmp_path / "ends_of_a_person.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "ends_of_a_person"
    sys.modules.pop("ends_of_a_person", None)


def load(value: object) -> Tell:
    functions = HandlerFunctions(most_left=1, failed=lambda _reason: None, clean_up_s=0.0)
    return load_batch_hook(batch_hook(value), runner=functions.runner)


async def told(hook: object, left_s: float = 30.0) -> HookReturn:
    """Tell the end as an agent does; return how that ended."""
    hooks = Hooks(tools=handlers_harness().tools, by_kind={}, of_batches=load(hook))
    assert hooks.kinds == {OF_BATCHES}
    return await hooks.run_of_batch(END, left_s)


def run(work: Awaitable[Any]) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["note", "plain"])
def test_a_function_gets_the_end(module: str, name: str) -> None:
    """It may be async or plain."""
    assert run(told(f"{module}:{name}")) == TOLD
    assert sys.modules[module].told == [END]


def test_a_function_that_raises_has_failed(module: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log has its error, with the batch and the round."""
    returned = run(told(f"{module}:broken"))

    assert returned.failure == f"{NAME}: ValueError: the queue is full"
    assert "on_batch_done of batch reports, round 2, failed: ValueError" in caplog.text


def test_a_command_for_a_shell_is_refused() -> None:
    """It would run without one, get the signs as its arguments, and perhaps succeed."""
    with pytest.raises(ConfigError, match="has '>', and runs without a shell") as raised:
        load({"command": "echo s3cret > done.txt"})

    assert "s3cret" not in str(raised.value)
    load({"command": "sh -c 'echo s3cret > done.txt'"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ends_of_a_person:narrow", "must take the end; define it as: def narrow(end), or async"),
        ("ends_of_a_person:missing", "has no function missing"),
        ("http://hooks.example/x?key=s3cret", "write https://"),
        ("https://[::1", "hooks.on_batch_done"),
    ],
)
def test_what_cannot_be_called_is_refused(module: str, value: str, text: str) -> None:
    """The message names the setting, and no secret of it."""
    with pytest.raises((ConfigError, ValueError)) as raised:
        load(value.replace("ends_of_a_person", module))

    assert "s3cret" not in str(raised.value)
    if isinstance(raised.value, ConfigError):
        assert text in str(raised.value)
        assert "hooks.on_batch_done" in str(raised.value)


def test_a_server_gets_the_end_as_json() -> None:
    """The address is used as it is, with its query."""

    async def work() -> None:
        async with serving(204) as server:
            assert await told(f"{server.url}/done?key=s3cret") == TOLD
            (request,) = server.requests
            head, _, body = request.partition(b"\r\n\r\n")
            assert head.startswith(b"POST /done?key=s3cret HTTP/1.1")
            assert b"content-type: application/json" in head.lower()
            assert orjson.loads(body) == END_JSON

    run(work())


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (500, "its server answered 500"),
        (404, "its server answered 404"),
        (307, "its server answered 307; redirects are not followed"),
    ],
)
def test_another_answer_is_a_failure(
    status: int, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again later; nothing that the address holds is written down."""

    async def work() -> None:
        async with serving(status) as server:
            returned = await told(f"{server.url}/done?key=s3cret")
            assert (returned.failure, len(server.requests)) == (f"{NAME}: {failure}", 1)

    run(work())
    assert failure in caplog.text
    assert "s3cret" not in caplog.text


def test_a_server_that_is_away_is_a_failure() -> None:
    """Its address is not in the text."""

    async def work() -> HookReturn:
        async with serving(200) as server:
            url = f"{server.url}/done?key=s3cret"
        return await told(url)

    returned = run(work())

    assert returned.failure.startswith(f"{NAME}: its server cannot be reached: ")
    assert "s3cret" not in returned.failure
    assert "/done" not in returned.failure


def test_a_command_gets_the_end_as_its_input(tmp_path: Path) -> None:
    """No shell reads its words."""
    script = tmp_path / "tell me.py"
    script.write_text(
        "import pathlib, sys\npathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())\n"
    )
    target = tmp_path / "$(told)"

    returned = run(told({"command": f"{sys.executable} '{script}' '{target}'"}))

    assert returned == TOLD
    assert orjson.loads(target.read_bytes()) == END_JSON


def command(text: str) -> dict[str, str]:
    return {"command": f"""{sys.executable} -c "{text}\""""}


@pytest.mark.parametrize(
    ("hook", "failure"),
    [
        (
            command("import sys; print('first', file=sys.stderr); sys.exit('no such queue')"),
            "its command ended with exit code 1: no such queue",
        ),
        (command("import sys; sys.exit(3)"), "its command ended with exit code 3"),
        (command("import os; os.kill(os.getpid(), 9)"), "its command ended with signal 9"),
        ({"command": "/nonexistent/tell"}, "its command cannot be run: No such file or directory"),
    ],
)
def test_a_command_that_fails_says_why(hook: object, failure: str) -> None:
    """Its exit code, and the last line of what it wrote as its errors."""
    assert run(told(hook)).failure == f"{NAME}: {failure}"


def test_of_many_words_of_a_command_the_last_are_kept() -> None:
    """It reads none of its input, and writes more than an agent would keep."""
    returned = run(told(command("import sys; sys.exit('x' * 3000000 + 'end')")))

    assert returned.failure.endswith("xend")
    assert len(returned.failure) < 1000


def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    """Its time is over, and nothing of it goes on."""
    began = tmp_path / "pids"
    script = tmp_path / "hang.sh"
    script.write_text(f"sleep 600 &\necho $$ $! > {began}\nwait\n")

    returned = run(told({"command": f"sh {script}"}, left_s=2.0))

    assert returned.failure == f"{NAME}: it did not end in time"
    for pid in map(int, began.read_text().split()):
        assert not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "value",
    ["tell", {"command": ""}, {"command": "a 'b"}, {"command": ["a"]}, {"run": "a"}, 3, "ftp://x"],
)
def test_a_setting_of_another_form_is_refused(value: object) -> None:
    """The message shows the three forms, and no value."""
    with pytest.raises(ValueError, match=r"write package\.module:function, https"):
        batch_hook(value)


@pytest.mark.parametrize("value", ["https://hooks.example/T0/s3cret", {"command": "tell s3cret"}])
def test_a_setting_shows_no_secret(value: object) -> None:
    """Addresses of hooks hold keys in their paths, and commands in their arguments."""
    setting = batch_hook(value)

    assert "s3cret" not in f"{setting} {setting!r}"
