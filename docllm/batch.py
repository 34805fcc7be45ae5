"""Batches from Python: `docllm.Batch` and `docllm.Client`.

Each method does what the command of its name does, and refuses what it refuses.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from docllm.commands import (
    Group,
    error_of,
    in_thread,
    require_not_cancelled,
    stopped,
    tail,
    written,
)
from docllm.producer.app import LedgerParts
from docllm.producer.input.documents import question_of
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.producer.ledger.status import group_status
from docllm.producer.ledger.status.batch_wait import (
    BatchProgress,
    read_progress,
    wait_for_batch,
)
from docllm.results import (
    FIELDS,
    Counts,
    LoadError,
    Reject,
    Result,
    Submitted,
    WaitError,
    result_of,
)
from docllm.rows import Rows
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

_STATES = ("pending", "processing", "retrying", "succeeded", "dead", "cancelled")
_NO_ROWS = "there are no rows; an iterator gives them once, so make the batch anew with a new one"
_NUMBER_OF_REJECTS = "0"  # `--max-rejects`: they are returned, however many there are


class Batch:
    """A batch of tasks: made of rows or documents, or found by its name.

    Args:
        name: The batch. A second batch of the same name and rows goes on with the first one.
        prompt: What to do with each row or document; `{document}` stands for its text.
        rows: Dicts, a DataFrame, or any iterable of dicts. Without `prompt`, `type`, `model` and
            `schema`, each one is a whole task line, and may be its JSON. An iterator is read once,
            by the first `submit`.
        documents: A folder, a pattern such as `reports/**/*.pdf`, or a URI such as `s3://b/f/`.
        text, id: The columns of text and id, if they are not called so. The index of a DataFrame is
            the id if no column is.
        schema: The JSON Schema of the answers, or a pydantic model, which the results then are.
        model, type, tenant, priority, not_before, output_uri, output_raw: As the options of
            `docllm load`.
        number_rows: Make ids of the numbers of the rows: `row-1` and so on.
        config, group: The settings and the group, as for the commands.

    """

    def __init__(
        self,
        name: str,
        *,
        prompt: str | None = None,
        rows: Iterable[Any] | None = None,
        documents: str | Path | None = None,
        text: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of the field
        schema: Any = None,
        model: str | None = None,
        type: str | None = None,  # noqa: A002 - the name of the field
        tenant: str | None = None,
        priority: int | None = None,
        not_before: str | datetime | None = None,
        output_uri: str | None = None,
        output_raw: bool = False,
        number_rows: bool = False,
        config: str | Path | None = None,
        group: str = "docllm",
    ) -> None:
        if rows is not None and documents is not None:
            raise ConfigError("give rows or documents, not both")
        if documents is not None and prompt is None:
            raise ConfigError("documents need a prompt with {document}")
        self.name = name
        self._group = Group(group, None if config is None else str(config))
        self._rows = rows
        self._documents = None if documents is None else str(documents)
        self._prompt, self._model, self._type = prompt, model, type
        self._schema = schema
        self._columns: dict[str, str | None] = {"id": id, "text": text}
        self._number_rows = number_rows
        self._options = {
            "--tenant": tenant,
            "--priority": priority,
            "--not-before": (
                not_before.isoformat() if isinstance(not_before, datetime) else not_before
            ),
            "--output-uri": output_uri,
        }
        self._flags = ["--output-raw"] if output_raw else []

    def __repr__(self) -> str:
        return f"docllm.Batch({self.name!r})"

    # ---- load and run

    def submit(self) -> Submitted:
        """Load what is not loaded yet, and return how much that was and what was refused.

        Raises LoadError, which names row and field, if nothing could be loaded, and ConfigError,
        UnreachableError and UnsafeStateError as the commands do.
        """
        with tempfile.TemporaryDirectory(prefix="docllm-") as folder:
            schema = self._schema_file(Path(folder))
            if self._documents is not None:
                given = [f"--documents={self._documents}", *self._of_documents(schema)]
                return self._load(given, lambda line: line)
            if self._rows is None:
                raise ConfigError(
                    f"batch {self.name!r} has neither rows nor documents to load; an iterator "
                    "gives its rows once"
                )
            return self._load_rows(self._rows, Path(folder), schema)

    def _load_rows(self, given: Iterable[Any], folder: Path, schema: Path | None) -> Submitted:
        bad: list[Reject] = []
        numbers: list[int] = []  # of the rows in the file, in order
        has_question = (self._prompt, self._model, self._type, schema) != (None,) * 4
        common = question_of(self._prompt, self._model, self._type, schema) if has_question else {}
        rows = Rows(rows=given, common=common, number=self._number_rows, **self._columns)

        def lines() -> Iterator[bytes]:
            for line in rows.lines():
                require_not_cancelled()
                if isinstance(line, ValidLine):
                    numbers.append(line.line)
                    yield line.value
                else:
                    bad.append(_reject(line))

        is_once = isinstance(given, Iterator)
        if is_once:
            self._rows = ()  # if this fails, the rows that it had not read are not all
        path = folder / "rows.jsonl"
        if not written(path, lines()):
            raise LoadError(str(bad[0]) if bad else _NO_ROWS, tuple(bad))
        submitted = self._load([str(path)], lambda line: numbers[line - 1], bad)
        if is_once:
            self._rows = None
        return submitted

    def _load(
        self, given: list[str], row_of: Callable[[int], int], bad: Iterable[Reject] = ()
    ) -> Submitted:
        options = [f"{name}={value}" for name, value in self._options.items() if value is not None]
        options += self._flags
        named = [f"--batch={self.name}", f"--max-rejects={_NUMBER_OF_REJECTS}", *options]
        answer = self._group.command("load", *named, *given, ok=(0, 1))
        rejects = [*bad]
        if answer["rejects"]:
            for text in Path(answer["rejects"]).read_bytes().splitlines():
                line = orjson.loads(text)
                place = row_of(line["line"])
                rejects.append(Reject(place, line["field"], line["error"], line["fix"]))
        rejects.sort(key=lambda reject: reject.row)
        loaded, twins = answer["loaded"] or 0, answer.get("known", 0)
        if rejects and not loaded and not twins:
            raise LoadError(str(rejects[0]), tuple(rejects))
        return Submitted(loaded, twins, tuple(rejects), tuple(answer["warnings"]))

    def _of_documents(self, schema: Path | None) -> list[str]:
        given = {
            "prompt": self._prompt,
            "model": self._model,
            "type": self._type,
            "schema": schema,
        }
        return [f"--{name}={value}" for name, value in given.items() if value is not None]

    def _schema_file(self, folder: Path) -> Path | None:
        """Return a file with the JSON Schema of the answers; None without one."""
        if self._schema is None:
            return None
        is_model = hasattr(self._schema, "model_json_schema")
        schema = self._schema.model_json_schema() if is_model else self._schema
        if not isinstance(schema, Mapping):
            raise ConfigError("schema is neither a dict nor a pydantic model")
        path = folder / "schema.json"
        path.write_text(json.dumps(schema))
        return path

    def run(self, *, slots: int | None = None, rehearsal: bool = False) -> "Batch":
        """Submit what is not loaded, let an agent work until the batch is done, and return self.

        The agent is a child process of the group that the settings name; it takes other tasks of
        the group too. It makes `slots` calls at once. With `rehearsal`, docllm's rehearsal LLM
        answers in place of a provider. The progress is one line on a terminal or in a notebook.
        Interrupted or killed, it loses nothing: run it again. Rows that were refused are a warning;
        `submit` returns them.
        """
        if self._rows is not None or self._documents is not None:
            self._warn(self.submit())
        options = [] if slots is None else [f"--slots={slots}"]
        options += ["--rehearsal"] if rehearsal else []
        with tempfile.TemporaryFile() as said:
            agent = self._group.start("agent", *options, stdout=said, stderr=said)

            def show(progress: BatchProgress) -> None:
                if agent.poll() is not None:
                    raise error_of(agent.returncode or 5, tail(said))
                _show(self.name, progress)

            with stopped(agent):
                self._wait(None, show)
        return self

    def _warn(self, submitted: Submitted) -> None:
        """Warn of what only the return value of `submit` tells."""
        if rejects := submitted.rejects:
            noun = "row" if self._documents is None else "document"
            refused = f"{number_of(len(rejects), noun)} of batch {self.name} refused"
            warnings.warn(f"{refused}, the first: {rejects[0]}", stacklevel=3)

    def wait(self, timeout_s: float | None = None, *, fail_on_dead: bool = False) -> Counts:
        """Wait until the batch is done, and return its counts; agents elsewhere run it.

        Raises TimeoutError after `timeout_s`, and WaitError if a task is dead and `fail_on_dead`; a
        join that waits for the replay of a dead task counts as dead.
        """
        progress = self._wait(timeout_s, lambda progress: _show(self.name, progress))
        if not progress.done:
            raise TimeoutError(
                f"batch {self.name} is not done after {timeout_s:g} s: "
                f"{number_of(progress.open, 'task')} open"
            )
        dead = progress.dead + progress.stopped
        if dead and fail_on_dead:
            raise WaitError(f"{number_of(dead, 'task')} of batch {self.name} dead")
        return self.status

    def _wait(self, timeout_s: float | None, show: Any) -> BatchProgress:
        async def wait(parts: LedgerParts, _config: Config) -> BatchProgress:
            return await wait_for_batch(
                parts.transactions,
                self._group.name,
                self.name,
                clock=SystemClock(),
                timeout_s=timeout_s,
                show=show,
            )

        try:
            return self._group.read(wait)
        finally:
            _show_end()

    # ---- look

    @property
    def status(self) -> Counts:
        """The tasks by state; all 0 if the group has no such batch."""

        async def read(parts: LedgerParts, config: Config) -> Counts:
            group, name, look = self._group.name, self.name, parts.transactions.read
            status = await look(group_status.read_group, group, name, tiers_of=config.tiers_of)
            for batch in status.batches:
                if batch.name == name:
                    counts = {state: batch.counts[state] for state in _STATES}
                    done = (await look(read_progress, group, name)).done
                    return Counts(**counts, done=done, cost=batch.cost)
            return Counts()

        return self._group.read(read)

    def results(self, *, status: str | None = None) -> Iterator[Result]:
        """Yield the tasks in the order of loading, as they are; `status` selects those in a state.

        They are read as you take them, so that a large batch takes little memory.
        """
        chosen = [] if status is None else [f"--status={status}"]
        lines = self._group.lines("export", f"--batch={self.name}", *chosen, "--format=jsonl", "-")
        for line in lines:
            yield result_of(line, self._schema, self.name)

    def dead(self) -> list[Result]:
        """Return the dead tasks, with their errors."""
        return list(self.results(status="dead"))

    def to_pandas(self) -> Any:
        """Return the tasks as a DataFrame with the ids as its index, one column for each field."""
        try:
            import pandas as pd  # noqa: PLC0415 - only who asks for it needs it
        except ImportError:
            raise ConfigError(
                "a DataFrame needs the package pandas; install it: pip install pandas"
            ) from None
        rows = [tuple(getattr(result, name) for name in FIELDS) for result in self.results()]
        return pd.DataFrame(rows, columns=list(FIELDS)).set_index("id")

    def to_parquet(self, path: str | Path, *, flatten: bool = False) -> None:
        """Write the tasks to a Parquet file; `flatten` makes a column of each field of results."""
        more = ["--flatten"] if flatten else []
        given = ("export", f"--batch={self.name}", "--format=parquet", *more, str(path))
        for _ in self._group.lines(*given):
            pass

    def replay(
        self, *, model: str | None = None, route: str | None = None, prompt: str | None = None
    ) -> int:
        """Try the dead tasks again, with another model, route or prompt if given; return how many.

        Agents run them: call `run` or `wait` next.
        """
        given = {"--model": model, "--route": route, "--prompt": prompt}
        options = [f"{name}={value}" for name, value in given.items() if value is not None]
        answer = self._group.command("replay", f"--batch={self.name}", "--yes", *options)
        return int(answer.get("plan", {}).get("tasks", 0))

    # ---- the same for asyncio

    async def asubmit(self) -> Submitted:
        """Do what `submit` does."""
        return await in_thread(self.submit)

    async def arun(self, *, slots: int | None = None, rehearsal: bool = False) -> "Batch":
        """Do what `run` does; cancelled, it stops its agent first."""
        return await in_thread(self.run, slots=slots, rehearsal=rehearsal)

    async def await_(self, timeout_s: float | None = None, *, fail_on_dead: bool = False) -> Counts:
        """Do what `wait` does."""
        return await in_thread(self.wait, timeout_s, fail_on_dead=fail_on_dead)

    async def astatus(self) -> Counts:
        """Return `status`."""
        return await in_thread(lambda: self.status)

    async def aresults(self, *, status: str | None = None) -> list[Result]:
        """Return all that `results` yields."""
        return await in_thread(lambda: list(self.results(status=status)))

    async def adead(self) -> list[Result]:
        """Do what `dead` does."""
        return await in_thread(self.dead)

    async def ato_pandas(self) -> Any:
        """Do what `to_pandas` does."""
        return await in_thread(self.to_pandas)

    async def ato_parquet(self, path: str | Path, *, flatten: bool = False) -> None:
        """Do what `to_parquet` does."""
        await in_thread(self.to_parquet, path, flatten=flatten)

    async def areplay(
        self, *, model: str | None = None, route: str | None = None, prompt: str | None = None
    ) -> int:
        """Do what `replay` does."""
        return await in_thread(self.replay, model=model, route=route, prompt=prompt)


class Client:
    """A group that others run: its batches and tasks. It holds nothing open."""

    def __init__(self, *, config: str | Path | None = None, group: str = "docllm") -> None:
        self._config, self._name = config, group
        self._group = Group(group, None if config is None else str(config))

    def batch(self, name: str, *, schema: Any = None) -> Batch:
        """Return a batch by its name; with `schema`, a pydantic model, its results are such."""
        return Batch(name, schema=schema, config=self._config, group=self._name)

    def submit(self, line: Mapping[str, Any], *, batch: str) -> Submitted:
        """Add one task, a whole task line, to a batch. Raises LoadError if it is none."""
        return Batch(batch, rows=[line], config=self._config, group=self._name).submit()

    def get(self, batch: str, id: str) -> Result:  # noqa: A002 - the name of the field
        """Return a task in any state. Raises ConfigError if the batch has no such task."""
        lines = self._group.lines("export", f"--batch={batch}", f"--id={id}", "--format=jsonl", "-")
        with suppress(StopIteration):
            return result_of(next(lines))
        raise ConfigError(f"no task {id!r} in batch {batch!r} of group {self._name}")

    async def asubmit(self, line: Mapping[str, Any], *, batch: str) -> Submitted:
        """Do what `submit` does."""
        return await in_thread(self.submit, line, batch=batch)

    async def aget(self, batch: str, id: str) -> Result:  # noqa: A002 - the name of the field
        """Do what `get` does."""
        return await in_thread(self.get, batch, id)


def _reject(line: InvalidLine) -> Reject:
    return Reject(line.line, line.field, line.error, line.fix)


def _show(name: str, progress: BatchProgress) -> None:
    """Show how far a batch is, in one line that is written anew."""
    require_not_cancelled()
    if _has_line():
        dead = f", {progress.dead:,} dead" if progress.dead else ""
        ended = progress.total - progress.open
        sys.stderr.write(f"\r{name}: {ended:,} of {progress.total:,} tasks{dead}   ")
        sys.stderr.flush()


def _show_end() -> None:
    if _has_line():
        sys.stderr.write("\r\x1b[K" if sys.stderr.isatty() else "\n")
        sys.stderr.flush()


def _has_line() -> bool:
    """Return whether somebody sees a line on standard error that is written anew."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
