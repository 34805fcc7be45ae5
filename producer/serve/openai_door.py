"""The door `/openai/v1`: files and batches of OpenAI's batch API."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from docllm.producer.app import Parts
from docllm.producer.input.packed import is_packed
from docllm.producer.ledger import cancel, openai_batches
from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.ledger.openai_batches import OpenAIBatch
from docllm.producer.loading.loader import make_loader
from docllm.producer.loading.preflight import Preflight
from docllm.producer.serve.openai_batch import (
    ENDED,
    ENDPOINT,
    batch_json,
    expires_at,
    selection,
    state_of,
    view_line,
    view_of,
)
from docllm.producer.serve.posted import Refusals, posted_lines, types_of_agents
from docllm.producer.serve.refusal import DenyError
from docllm.producer.serve.tasks import results, soon
from docllm.producer.serve.uploads import KEPT_S, Upload, Uploads, new_number
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, DocllmError, UnsafeStateError
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.task.record.topics import duration_s

log = logging.getLogger("docllm.producer.serve")

ACTOR = "a client of docllm serve"
RETRY_S = 10.0
AT_ONCE = 2  # loads of files
_FILES, _BATCHES = 10_000, 100  # on a page of a list, at most
_JSON_BYTES = 64 << 10
_HEAD_BYTES = 16
_PAIRS, _NAME, _VALUE = 16, 64, 512  # of metadata


@dataclass(frozen=True, slots=True)
class FileLoads:
    """Loads the files of batches, each as a whole or not at all."""

    parts: Parts
    uploads: Uploads
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), init=False)
    _running: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def start(self, found: OpenAIBatch) -> None:
        """Load the batch's file in the background."""
        task = asyncio.create_task(self._load_once(found))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def resume(self) -> None:
        """Go on with the batches that a stopped server has left unloaded."""
        group = self.parts.topics.group
        for found in await self.parts.transactions.read(openai_batches.unloaded, group):
            self.start(found)

    async def close(self) -> None:
        """Stop; the next server goes on."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _load_once(self, found: OpenAIBatch) -> None:
        async with self._free:
            while True:
                try:
                    await self._load(found)
                except UnsafeStateError as error:  # it was cancelled or purged meanwhile
                    log.info("batch %s: %s", found.batch.name, error)
                except DocllmError as error:
                    log.warning(
                        "batch %s cannot be loaded yet: %s",
                        found.batch.name,
                        error,
                        extra={"code": error.code},
                    )
                    await self.parts.clock.sleep(RETRY_S)
                    continue
                except Exception:
                    log.exception(
                        "batch %s cannot be loaded",
                        found.batch.name,
                        extra={"code": Code.INTERNAL_ERROR},
                    )
                return

    async def _load(self, found: OpenAIBatch) -> None:
        upload = self.uploads.find(found.facts["input_file_id"])
        if upload is None:
            log.warning(
                "batch %s waits for its file, which is not in the folder of [serve] files; cancel "
                "the batch if the file is lost",
                found.batch.name,
                extra={"code": Code.SETTINGS_WRONG},
            )
            return
        refusals, reading = Refusals(), ThreadExecutor("reading")
        try:
            with self.uploads.content(upload).open("rb") as file:
                config, reported = self.parts.config, await types_of_agents(self.parts)
                lines = posted_lines(config, file, reported)
                errors = await self._errors(found, lines, reading)
                if errors:
                    await self.parts.transactions.write(openai_batches.fail, found.batch, errors)
                    return
                defaults = TaskDefaults(expires_at=expires_at(found))
                loader = make_loader(
                    self.parts,
                    found.batch,
                    reading=reading,
                    defaults=defaults,
                    reject=refusals.add,
                )
                await loader.load(posted_lines(config, file, reported))
        finally:
            reading.close(wait=False)

    async def _errors(
        self, found: OpenAIBatch, lines: Any, reading: ThreadExecutor
    ) -> list[dict[str, Any]]:
        """Return why the file is refused; nothing if every line is a task."""
        refusals = Refusals()
        preflight = Preflight(
            batch=found.batch.name,
            reading=reading,
            ask=None,
            reject=refusals.add,
            is_new=lambda _line: None,
            over_http=True,
        )
        try:
            summary = await preflight.read(lines)
        except ConfigError as error:
            return [_error("invalid_file", str(error))]
        if not summary.new and not refusals.count:
            return [_error("empty_file", "the file has no task line")]
        return [_of_line(**bad) for bad in refusals.named]


def _of_line(line: int, field: str, error: str, fix: str) -> dict[str, Any]:
    message = f"{' '.join(filter(None, (field, error)))}; {fix}"
    return _error("invalid_line", message, field, line)


def _error(
    code: str, message: str, param: str | None = None, line: int | None = None
) -> dict[str, Any]:
    return {"code": code, "message": message, "param": param or None, "line": line}


@dataclass(frozen=True, slots=True)
class OpenAIDoor:
    """Serves files and batches to clients of OpenAI's batch API."""

    parts: Parts
    uploads: Uploads
    loads: FileLoads

    @property
    def routes(self) -> list[Route]:
        """The paths of this door."""
        base = "/openai/v1"
        return [
            Route(f"{base}/files", self._upload, methods=["POST"]),
            Route(f"{base}/files", self._files),
            Route(f"{base}/files/{{id}}", self._file),
            Route(f"{base}/files/{{id}}", self._delete, methods=["DELETE"]),
            Route(f"{base}/files/{{id}}/content", self._content),
            Route(f"{base}/batches", self._create, methods=["POST"]),
            Route(f"{base}/batches", self._batches),
            Route(f"{base}/batches/{{id}}", self._batch),
            Route(f"{base}/batches/{{id}}/cancel", self._cancel, methods=["POST"]),
        ]

    # ---- files

    async def _upload(self, request: Request) -> Response:
        async with request.form(max_files=1, max_fields=10, max_part_size=_JSON_BYTES) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise _bad("file", "send the file in the part `file` of multipart/form-data")
            if form.get("purpose") != "batch":
                raise _bad("purpose", "the purpose is not `batch`, the only one that is served")
            kept_s = _whole(form, "expires_after[seconds]", KEPT_S, least=3600, most=KEPT_S)
            if is_packed(await file.read(_HEAD_BYTES)):
                raise _bad("file", "the file is packed; send it unpacked")
            await file.seek(0)
            try:
                upload = await asyncio.to_thread(
                    self.uploads.keep, file.file, file.filename or "", kept_s
                )
            except OSError as error:
                raise DenyError(
                    HTTPStatus.INSUFFICIENT_STORAGE, f"the file cannot be kept: {error.strerror}"
                ) from None
        return JSONResponse(upload.as_json())

    async def _files(self, request: Request) -> Response:
        after, query = request.query_params.get("after"), request.query_params
        most = _whole(query, "limit", _FILES, most=_FILES)
        files = await asyncio.to_thread(self.uploads.all)
        if query.get("order") == "asc":
            files.reverse()
        if (purpose := query.get("purpose")) is not None:
            files = [file for file in files if file.purpose == purpose]
        if after is not None:
            ids = [file.id for file in files]
            if after not in ids:
                raise _bad("after", f"there is no file {after!r}")
            files = files[ids.index(after) + 1 :]
        return _list([file.as_json() for file in files[: most + 1]], most)

    async def _file(self, request: Request) -> Response:
        file_id = request.path_params["id"]
        if (view := await self._view(file_id)) is None:
            return JSONResponse(self._require_file(file_id).as_json())
        kind, found = view
        size = 0
        async for part in await results(self.parts, found.batch, selection(kind), view_line):
            size += len(part)
        batch = batch_json(found)
        file = {
            "id": file_id,
            "object": "file",
            "bytes": size,
            "created_at": batch["created_at"],
            "expires_at": None,
            "filename": f"{found.id}_{kind}.jsonl",
            "purpose": "batch_output",
            "status": "processed",
        }
        return JSONResponse(file)

    async def _content(self, request: Request) -> Response:
        file_id = request.path_params["id"]
        if (view := await self._view(file_id)) is None:
            path = self.uploads.content(self._require_file(file_id))
            return FileResponse(path, media_type="application/octet-stream")
        kind, found = view
        parts = await results(self.parts, found.batch, selection(kind), view_line)
        return StreamingResponse(parts, media_type="application/octet-stream")

    async def _delete(self, request: Request) -> Response:
        file_id = request.path_params["id"]
        if await self._view(file_id) is not None:
            raise DenyError(
                HTTPStatus.CONFLICT,
                f"{file_id} is a view of its batch's tasks, which docllm purge deletes",
            )
        upload = self._require_file(file_id)
        group = self.parts.topics.group
        for found in await soon(self.parts.transactions.read(openai_batches.unloaded, group)):
            if found.facts["input_file_id"] == file_id:
                raise DenyError(
                    HTTPStatus.CONFLICT, f"batch {found.id} is being loaded from {file_id}"
                )
        await asyncio.to_thread(self.uploads.delete, upload)
        return JSONResponse({"id": file_id, "object": "file", "deleted": True})

    def _require_file(self, file_id: str) -> Upload:
        upload = self.uploads.find(file_id)
        if upload is None:
            raise _not_found("file", file_id)
        return upload

    async def _view(self, file_id: str) -> tuple[str, OpenAIBatch] | None:
        """Return the kind and the batch of an output or error file; None for another id."""
        if (named := view_of(file_id)) is None:
            return None
        kind, batch_id = named
        return kind, await self._require(batch_id)

    # ---- batches

    async def _create(self, request: Request) -> Response:
        given = await _object(request)
        file_id, window = given.get("input_file_id"), given.get("completion_window")
        if not isinstance(file_id, str) or self.uploads.find(file_id) is None:
            raise _bad("input_file_id", "there is no such file; upload one with POST /files")
        if given.get("endpoint") != ENDPOINT:
            raise _bad("endpoint", f"the endpoint is not {ENDPOINT}, the only one that is served")
        facts = {
            "input_file_id": file_id,
            "endpoint": ENDPOINT,
            "completion_window": window,
            "window_s": _window_s(window),
            "metadata": _metadata(given.get("metadata")),
        }
        found = await self.parts.transactions.write(
            openai_batches.create,
            self.parts.topics.group,
            f"batch_{new_number(self.parts.clock)}",
            facts,
        )
        crash.reach("serve.batch_made")
        self.loads.start(found)
        return JSONResponse(batch_json(found))

    async def _batches(self, request: Request) -> Response:
        query = request.query_params
        most, after = _whole(query, "limit", 20, most=_BATCHES), query.get("after")
        read = partial(openai_batches.page, group=self.parts.topics.group)
        try:
            found = await soon(self.parts.transactions.read(read, after=after, most=most + 1))
        except ConfigError:
            raise _bad("after", f"there is no batch {after!r}") from None
        return _list([batch_json(each) for each in found], most)

    async def _batch(self, request: Request) -> Response:
        return JSONResponse(batch_json(await self._require(request.path_params["id"])))

    async def _cancel(self, request: Request) -> Response:
        found = await self._require(request.path_params["id"])
        if (state := state_of(found)) in ENDED:
            raise DenyError(HTTPStatus.CONFLICT, f"batch {found.id} is {state} already")
        write, more_wait = self.parts.transactions.write, True
        await write(cancel.cancel_batch, found.batch, ACTOR)
        while more_wait:
            _, more_wait = await write(cancel.cancel_page, found.batch.id)
        return JSONResponse(batch_json(await self._require(found.id)))

    async def _require(self, batch_id: str) -> OpenAIBatch:
        group = self.parts.topics.group
        found = await soon(self.parts.transactions.read(openai_batches.find, group, batch_id))
        if found is None:
            raise _not_found("batch", batch_id)
        return found


def _list(rows: list[dict[str, Any]], most: int) -> Response:
    """Return a page of a list; `rows` has one row more if there are more."""
    page = rows[:most]
    return JSONResponse(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(rows) > most,
        }
    )


async def _object(request: Request) -> dict[str, Any]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _JSON_BYTES:
            raise DenyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _bad(None, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _bad(None, "the body is not an object")
    return value


def _window_s(window: object) -> int:
    try:
        window_s = duration_s(window) if isinstance(window, str) else 0
    except ConfigError:
        window_s = 0
    if not 0 < window_s <= KEPT_S:
        raise _bad("completion_window", "write a time from 1s to 30d, such as 24h")
    return window_s


def _metadata(given: object) -> dict[str, str] | None:
    if given is None:
        return None
    if (
        not isinstance(given, dict)
        or len(given) > _PAIRS
        or not all(isinstance(value, str) and len(value) <= _VALUE for value in given.values())
        or not all(len(name) <= _NAME for name in given)
    ):
        raise _bad(
            "metadata",
            f"write at most {_PAIRS} pairs of texts, of {_NAME} and {_VALUE} characters",
        )
    return given


def _whole(given: Mapping[str, Any], name: str, default: int, *, most: int, least: int = 1) -> int:
    text = given.get(name, str(default))
    if not isinstance(text, str) or not text.isdecimal() or not least <= int(text[:18]) <= most:
        raise _bad(name, f"write a whole number from {least} to {most}")
    return int(text)


def _bad(param: str | None, message: str) -> DenyError:
    return DenyError(HTTPStatus.BAD_REQUEST, message, param=param)


def _not_found(what: str, name: str) -> DenyError:
    return DenyError(HTTPStatus.NOT_FOUND, f"there is no {what} {name!r}", code="not_found")
