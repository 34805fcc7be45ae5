"""The door `/v1`: submit task lines, and look up tasks, batches and results."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import IO, Any, TypeVar
from urllib.parse import unquote

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from docllm.producer.app import Parts
from docllm.producer.ledger import store
from docllm.producer.ledger.results import export
from docllm.producer.ledger.results.export import Selection
from docllm.producer.ledger.results.output_reader import OutputReader
from docllm.producer.ledger.results.pointed_results import follow
from docllm.producer.ledger.results.result_lines import LineOf, docllm_line
from docllm.producer.ledger.retention.archive_rows import require_rows
from docllm.producer.ledger.status.batch_status import read_batches
from docllm.producer.ledger.status.batch_wait import read_progress
from docllm.producer.serve.posted import Posted, as_lines, load_posted
from docllm.producer.serve.refusal import DenyError
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.task.batch_name import RULE, is_batch_name

T = TypeVar("T")

LINES = "application/x-ndjson"
READ_S = 30.0  # of one look-up
PART_BYTES = 256 << 10
_TRUTHS = {"true": True, "false": False}


async def results(
    parts: Parts, batch: store.Batch, selection: Selection, line_of: LineOf
) -> AsyncIterator[bytes]:
    """Return the lines of an export in parts. Raises DenyError if its rows are gone."""
    try:
        await soon(parts.transactions.read(require_rows, batch.name))
    except (ConfigError, UnsafeStateError) as error:
        raise DenyError(HTTPStatus.GONE, str(error)) from None
    return _results(parts, batch, selection, line_of)


async def _results(
    parts: Parts, batch: store.Batch, selection: Selection, line_of: LineOf
) -> AsyncIterator[bytes]:
    read, executor = parts.transactions.database.run_singly, parts.transactions.executor
    with closing(OutputReader()) as outputs:
        lines = export.lines(read, batch.id, selection, line_of, outputs.fetch)
        while part := await executor(partial(_part, lines)):
            yield part


def _part(lines: Iterator[tuple[Any, bytes | None]]) -> bytes:
    """Return the next lines, some at once; nothing behind the last one."""
    part = bytearray()
    for _, line in lines:
        part += line or b""
        if len(part) >= PART_BYTES:
            break
    return bytes(part)


async def soon(work: Awaitable[T]) -> T:
    """Return the result of a look-up; a client is not kept waiting for a ledger that is away."""
    try:
        async with asyncio.timeout(READ_S):
            return await work
    except TimeoutError:
        raise DenyError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"the ledger did not answer within {READ_S:g} s; ask again later",
            headers={"Retry-After": "10"},
        ) from None


@dataclass(frozen=True, slots=True)
class TaskDoor:
    """Serves tasks and batches of a group."""

    parts: Parts

    @property
    def routes(self) -> list[Route]:
        """The paths of this door."""
        return [
            Route("/v1/tasks", self._post, methods=["POST"]),
            Route("/v1/tasks/{batch}/{id:path}", self._task),
            Route("/v1/batches/{batch}", self._batch),
            Route("/v1/batches/{batch}/results", self._results),
        ]

    async def _post(self, request: Request) -> Response:
        given = _options(request.query_params, "batch", "close")
        name, close = given.get("batch", ""), _TRUTHS.get(given.get("close", "false"))
        if not is_batch_name(name):
            raise DenyError(
                HTTPStatus.BAD_REQUEST, f"name the batch: ?batch=NAME; {RULE}", param="batch"
            )
        if close is None:
            raise DenyError(HTTPStatus.BAD_REQUEST, "close is true or false", param="close")
        async with spooled(request) as body:
            await asyncio.to_thread(as_lines, body)
            posted = await load_posted(self.parts, name, body, close=close)
        if posted.is_refused:
            raise _all_bad(posted)
        return JSONResponse(posted.as_json(), HTTPStatus.ACCEPTED)

    async def _task(self, request: Request) -> Response:
        name, key = (_decoded(request.path_params[part]) for part in ("batch", "id"))
        batch, group = await self._require(name), self.parts.topics.group
        ids = await soon(self.parts.transactions.read(export.with_key, group, key.encode()))
        if batch.id not in ids:
            raise DenyError(
                HTTPStatus.NOT_FOUND, f"batch {name!r} has no task {key!r}", code="not_found"
            )
        ended = await soon(self.parts.transactions.read(export.one_task, ids[batch.id]))
        with closing(OutputReader()) as outputs:
            (whole,) = await self.parts.transactions.executor(
                lambda: list(follow([ended], outputs.fetch, _nothing))
            )
        line = export.written(whole, docllm_line) or b"{}"
        state = orjson.dumps({"state": whole.status.name.lower()})
        return Response(
            line.rstrip().removesuffix(b"}") + b"," + state[1:], media_type="application/json"
        )

    async def _batch(self, request: Request) -> Response:
        batch = await self._require(_decoded(request.path_params["batch"]))
        return _json(await soon(self.parts.transactions.read(self._status, batch.name)))

    def _status(self, connection: Connection, name: str) -> Mapping[str, Any]:
        group, tiers_of = self.parts.topics.group, self.parts.config.tiers_of
        (status,) = read_batches(connection, group, name, tiers_of=tiers_of)
        progress = read_progress(connection, group, name)
        return {"batch": name, **status.as_json(), "done": progress.done}

    async def _results(self, request: Request) -> Response:
        batch = await self._require(_decoded(request.path_params["batch"]))
        parts = await results(self.parts, batch, export.ALL, docllm_line)
        return StreamingResponse(parts, media_type=LINES)

    async def _require(self, name: str) -> store.Batch:
        """Return a batch of the group. Raises DenyError if it has no such batch."""
        group = self.parts.topics.group
        try:
            return await soon(self.parts.transactions.read(store.require_batch, group, name))
        except ConfigError as error:
            raise DenyError(HTTPStatus.NOT_FOUND, str(error), code="not_found") from None


@asynccontextmanager
async def spooled(request: Request) -> AsyncIterator[IO[bytes]]:
    """Yield the whole body of a request in a temporary file that has no name."""
    with tempfile.TemporaryFile() as file:
        async for part in request.stream():
            try:
                await asyncio.to_thread(file.write, part)
            except OSError as error:
                raise DenyError(
                    HTTPStatus.INSUFFICIENT_STORAGE,
                    f"the server has no room for the body: {error.strerror}",
                ) from None
        yield file


def _options(given: Mapping[str, str], *known: str) -> Mapping[str, str]:
    """Return the options of a query. Raises DenyError for an unknown one."""
    for name in given:
        if name not in known:
            raise DenyError(
                HTTPStatus.BAD_REQUEST,
                f"{name!r} is unknown; known are: {', '.join(known)}",
                param=name,
            )
    return given


def _all_bad(posted: Posted) -> DenyError:
    first, count = posted.refusals.named[0], posted.refusals.count
    lines = "the line is bad" if count == 1 else f"all {count} lines are bad"
    return DenyError(
        HTTPStatus.BAD_REQUEST,
        f"{lines}; line {first['line']}: {first['field'] or 'it'} {first['error']}; {first['fix']}",
        param=first["field"] or None,
        also=posted.as_json(),
    )


def _decoded(part: str) -> str:
    """Return a part of a path as a name. Raises DenyError if it is none."""
    try:
        name = unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise DenyError(HTTPStatus.NOT_FOUND, "the path is not UTF-8", code="not_found") from None
    return name


def _json(value: Mapping[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


def _nothing(_fact: object) -> None:
    pass
