"""The demo: summarize the modules of Python's standard library, from documents to results.

It uses docllm as a person would: by its commands. The rehearsal LLM answers with extracts, and a
story goes wrong on purpose: an agent is killed, the provider fails, a document kills agents, or an
agent is stopped. With `--provider` nothing does, because a repeated call is paid for twice.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from docllm.agent.llm.rehearsal.command import rehearsal_child
from docllm.agent.process import child_process
from docllm.schemas.codes import Code
from docllm.schemas.runtime.next_command import as_called
from docllm.schemas.runtime.starting import INTERRUPTED
from docllm.schemas.text.wording import number_of

FOLDER = "docllm-demo"
BATCH = "standard-library"
PROMPT = "Summarize in two sentences what this Python module is for: {document}"
SHOWN_RESULTS = 8
_MADE = {
    "docllm-data", "results.jsonl", "documents", "calls.jsonl", "agent-1.log", "agent-2.log",
    "poison.py", "docllm.toml", "__pycache__",
}  # fmt: skip
_BAD_DOCUMENT, _BAD = "scan.pdf", b"%PDF-1.7 and nothing else"
_POISONED = "zz-poison.txt"
_SETTINGS = '[types.summary]\nhandler = "poison:summarize"\n'
_HANDLER = '''"""The handler of the demo's story: one document kills its agent."""

import os
import signal


async def summarize(context):
    text = await context.document()
    if text.startswith("This document kills"):
        os.kill(os.getpid(), signal.SIGKILL)
    messages = [{"role": "user", "content": context.prompt.replace("{document}", text)}]
    answer = await context.complete({"model": context.model, "messages": messages})
    return answer.text
'''
_FINAL = {"succeeded", "dead"}
_SLOTS = 8
_BEGIN = 40  # calls that end before something goes wrong
_OUTAGE_S = 6.0
_POLL_S = 0.1
_PATIENCE_S = 180.0
_SHOWN_CHARS = 160  # of a line of an agent's log

console = Console(highlight=False)


def run(options: argparse.Namespace) -> int:
    """Run the demo in a folder of its own in the current folder; return its exit code."""
    folder = Path.cwd() / FOLDER
    try:
        if folder.exists() and not {path.name for path in folder.iterdir()} <= _MADE:
            sys.stderr.write(f"error: {folder} holds files that no demo made; rename the folder\n")
            return 2
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    except OSError as error:
        where = "run the demo in a folder in which you may write"
        sys.stderr.write(f"error: {folder} cannot be made: {error.strerror}; {where}\n")
        return 2
    try:
        return demo(folder, {}, rehearsal=not options.provider, story=options.story)
    except KeyboardInterrupt:
        return INTERRUPTED


def demo(
    folder: Path, environment: Mapping[str, str], *, rehearsal: bool, story: str = "kill"
) -> int:
    """Load the documents, run the agents, export and show the results."""
    began = time.monotonic()
    if not rehearsal:
        modules = f"{sysconfig.get_paths()['stdlib']}/*.py"
        for command in (
            ["load", "--documents", modules, "--prompt", PROMPT, "--batch", BATCH],
            ["agent", "--group", "docllm", "--until-done"],
            ["export", "--batch", BATCH, str(folder / "results.jsonl")],
        ):
            run_command(*command, environment=environment, folder=folder)
        return show(folder / "results.jsonl", time.monotonic() - began, rehearsal=False)
    console.print("The rehearsal LLM answers with extracts of the documents.", style="yellow")
    documents = folder / "documents"
    count = _copy_documents(documents, bad=story == "kill")
    kind = []
    if story == "poison":
        (documents / _POISONED).write_text("This document kills its agent.")
        (folder / "poison.py").write_text(_HANDLER)
        (folder / "docllm.toml").write_text(_SETTINGS)
        kind, count = ["--type", "summary"], count + 1
    calls = folder / "calls.jsonl"
    with rehearsal_child(shlex.join(["--latency", "0.2-0.4", "--log", str(calls)])) as url:
        environment = {
            **environment,
            "DOCLLM_LLM_BASE_URL": url,
            "DOCLLM_LLM_MODEL": "rehearsal",
            "DOCLLM_DOCUMENT_ROOTS": str(documents),
            "DOCLLM_RETRY_TIERS": "2s,4s,8s",
        }
        stage = Stage(folder, environment, url, calls)
        if "DOCLLM_KAFKA_BOOTSTRAP" in environment:
            stage.command("topics", "apply")
        given = ["--documents", "documents", "--prompt", PROMPT, *kind]
        stage.command("load", *given, "--batch", BATCH)
        why = STORIES[story](stage)
        stage.command("export", "--batch", BATCH, "results.jsonl")
        ends = show(folder / "results.jsonl", time.monotonic() - began, rehearsal=True)
        return ends or sum_up(folder / "results.jsonl", count, stage.repeated(), why)


def _copy_documents(folder: Path, *, bad: bool) -> int:
    """Copy the documents, and a bad one; return how many there are."""
    folder.mkdir()
    for module in Path(sysconfig.get_paths()["stdlib"]).glob("*.py"):
        shutil.copyfile(module, folder / module.name)
    if bad:
        (folder / _BAD_DOCUMENT).write_bytes(_BAD)
    return len(list(folder.iterdir()))


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a story plays: its folder and variables, the rehearsal LLM, and its log of calls."""

    folder: Path
    environment: Mapping[str, str]
    url: str
    calls: Path

    def command(self, *arguments: str) -> None:
        """Run a command."""
        run_command(*arguments, environment=self.environment, folder=self.folder)

    @contextmanager
    def agent(self, number: int, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start an agent that logs to a file; it ends with the block, and with this program."""
        arguments = ["agent", "--group", "docllm", "--until-done", "--slots", str(_SLOTS), *options]
        log = self.folder / f"agent-{number}.log"
        _say_command(f"{shlex.join(['docllm', *arguments])} 2> {log.name} &")
        with log.open("ab") as file:
            child = child_process.start(
                [*child_process.INTERPRETER, "docllm", *arguments],
                stderr=file,
                folder=self.folder,
                variables=_variables(self.environment),
            )
        try:
            yield child
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()

    def events(self) -> list[tuple[str, str]]:
        """Return the starts and ends of calls so far, with their tasks."""
        if not self.calls.exists():
            return []
        *lines, _unfinished = self.calls.read_bytes().split(b"\n")
        events = map(orjson.loads, lines)
        return [(event["event"], event["id"].partition("#")[0]) for event in events]

    def log(self, number: int) -> str:
        """Return what an agent has logged so far."""
        return (self.folder / f"agent-{number}.log").read_text()

    def repeated(self) -> int:
        """Return how many calls were made beyond one for each task."""
        started = [task for event, task in self.events() if event == "start"]
        return len(started) - len(set(started))

    def running(self) -> int:
        """Return how many calls are under way."""
        events = self.events()
        return sum(1 if event == "start" else -1 for event, _ in events)

    def until_ended(self, calls: int, agent: "subprocess.Popen[bytes]") -> None:
        """Wait until so many calls have ended."""
        self._until(lambda: sum(event == "end" for event, _ in self.events()) >= calls, agent)

    def until_done(self, agent: "subprocess.Popen[bytes]") -> None:
        """Wait until an agent has left."""
        with console.status("working"):
            self._until(lambda: agent.poll() is not None, None)
        if agent.returncode:
            self._failed(agent)

    def faults(self, faults: str) -> None:
        """Let the rehearsal LLM answer so from now on."""
        address = self.url.replace("/v1", "/faults")
        request = Request(address, faults.encode(), method="POST")  # noqa: S310 - our own server
        with urlopen(request, timeout=10):  # noqa: S310 - see above
            return

    def _until(self, is_true: Callable[[], bool], agent: "subprocess.Popen[bytes] | None") -> None:
        end_s = time.monotonic() + _PATIENCE_S
        while not is_true():
            if agent is not None and agent.poll() is not None:
                self._failed(agent)
            if time.monotonic() > end_s:
                sys.exit(f"the demo stands still; see the logs in {self.folder}")
            time.sleep(_POLL_S)

    def _failed(self, agent: "subprocess.Popen[bytes]") -> None:
        sys.exit(f"an agent ended with exit code {agent.returncode}; see the logs in {self.folder}")


def _kill(stage: Stage) -> str:
    """Kill one of two agents while it waits for answers."""
    with stage.agent(1, "--processes", "2") as agents:
        stage.until_ended(_BEGIN, agents)
        (process,) = re.findall(r"agent 1 started, process (\d+)", stage.log(1))
        running = number_of(stage.running(), "call")
        os.kill(int(process), signal.SIGKILL)
        _say(f"Agent 1 of 2 is killed (kill -9 {process}) while they have {running} under way.")
        stage.until_done(agents)
    _say_losses(stage)
    return "because an agent was killed"


def _say_losses(stage: Stage) -> None:
    """Say what the reaper said of lost agents."""
    for line in stage.log(1).splitlines():
        if f"[{Code.AGENT_LOST}]" in line or "of lost agents" in line:
            _say(line.partition("reaper: ")[2][:_SHOWN_CHARS])


def _outage(stage: Stage) -> str:
    """Let the provider fail for some seconds."""
    with stage.agent(1) as agent:
        stage.until_ended(_BEGIN, agent)
        stage.faults("503=1")
        _say(f"The provider fails: for {_OUTAGE_S:.0f} s it answers each call with 503.")
        time.sleep(_OUTAGE_S)
        stage.command("status", "--once")
        stage.faults("")
        _say("The provider is back. The agent tries one call, then more.")
        stage.until_done(agent)
    return "because the provider failed"


def _poison(stage: Stage) -> str:
    """Let a document kill each agent whose handler reads it."""
    _say("The handler kills its agent at one of the documents. After three losses it is dead.")
    with stage.agent(1, "--processes", "2") as agents:
        stage.until_done(agents)
    _say_losses(stage)
    return "because agents were killed"


def _stop(stage: Stage) -> str:
    """Stop an agent in mid-work, and start another one."""
    with stage.agent(1) as first:
        stage.until_ended(_BEGIN, first)
        running = number_of(stage.running(), "call")
        first.send_signal(signal.SIGTERM)
        _say(
            f"Agent 1 is told to stop (SIGTERM). It waits for {running} under way, then it leaves."
        )
        stage.until_done(first)
    stage.command("status", "--once")
    with stage.agent(2) as second:
        stage.until_done(second)
    return "because an agent was stopped"


STORIES: Mapping[str, Callable[[Stage], str]] = {
    "kill": _kill,
    "outage": _outage,
    "poison": _poison,
    "stop": _stop,
}


def sum_up(results: Path, documents: int, repeated: int, why: str) -> int:
    """Print what became of all documents; return 1 if one is lost."""
    states = [orjson.loads(line)["status"] for line in results.read_bytes().splitlines()]
    succeeded, dead = states.count("succeeded"), states.count("dead")
    lost = documents - succeeded - dead
    replay = as_called(f"docllm replay --batch {BATCH}")
    died = f", {dead} dead (replay: {replay})" if dead else ""
    console.print(
        f"\n{documents} tasks: {succeeded} succeeded{died}, "
        f"{number_of(repeated, 'call')} repeated {why}, {lost} lost",
        style="bold",
        soft_wrap=True,
        markup=False,
    )
    return 1 if lost else 0


def show(results: Path, took_s: float, *, rehearsal: bool) -> int:
    """Print a table of results, where they are, and what to do next."""
    rows = [orjson.loads(line) for line in results.read_bytes().splitlines()]
    table = Table(
        "document",
        "status",
        "tokens",
        box=None,
        expand=True,
        title=f"{SHOWN_RESULTS} of {len(rows)} results",
        title_justify="left",
    )
    table.add_column("result", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows[:SHOWN_RESULTS]:
        result = row["result"] or row["error"]
        table.add_row(*map(plain, (row["id"], row["status"], row["tokens_in"], result)))
    console.print("", table)
    where = os.path.relpath(results)
    console.print(
        f"\n{number_of(len(rows), 'task')} in {took_s:.1f} s; all results: {where}\n",
        soft_wrap=True,
    )
    console.print("Next:")
    run_yours = "docllm agent --until-done" + (" --rehearsal" if rehearsal else "")
    for command in (
        f"cd {os.path.relpath(results.parent)}",
        f"head -3 {results.name}",
        "docllm status --once",
        "docllm dead list",
        f"docllm load YOUR.jsonl && {run_yours}",
    ):
        console.print(f"  {as_called(command)}", soft_wrap=True, markup=False)
    return 0 if rows and all(row["status"] in _FINAL for row in rows) else 1


def plain(value: object) -> Text:
    """Return untrusted text on one line, without markup and without terminal control characters."""
    return Text(
        "".join(letter if letter.isprintable() else " " for letter in " ".join(str(value).split()))
    )


def run_command(*arguments: str, environment: Mapping[str, str], folder: Path) -> None:
    """Run one of docllm's commands, shown as a person would type it.

    The demo ends if the command fails.
    """
    command = shlex.join(["docllm", *arguments])
    _say_command(command)
    code = subprocess.run(  # noqa: S603 - a program of our own
        [*child_process.INTERPRETER, "docllm", *arguments],
        cwd=folder,
        env=_variables(environment),
        check=False,
    ).returncode
    if code:
        console.print(f"{command} ended with exit code {code}", style="red", markup=False)
        sys.exit(abs(code))


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command: nothing else of docllm's but the provider."""
    own = {
        name: value
        for name, value in (child_process.environment() or os.environ).items()
        if not name.startswith("DOCLLM_") or name.startswith("DOCLLM_LLM_")
    }
    return own | dict(environment)


def _say_command(command: str) -> None:
    console.print(f"\n$ {as_called(command)}", style="bold", soft_wrap=True, markup=False)


def _say(text: str) -> None:
    console.print(f"\n{text}", style="yellow", soft_wrap=True, markup=False)
