"""Puts the doors of the server together, behind the gate."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from docllm.producer.app import Parts
from docllm.producer.serve.gate import HEALTH, Bounds, Gate
from docllm.producer.serve.metrics import MetricsDoor
from docllm.producer.serve.openai_door import FileLoads, OpenAIDoor
from docllm.producer.serve.refusal import DenyError
from docllm.producer.serve.tasks import TaskDoor
from docllm.producer.serve.uploads import Uploads
from docllm.schemas.codes import Code
from docllm.schemas.errors import (
    ConfigError,
    DocllmError,
    InputError,
    UnreachableError,
    UnsafeStateError,
)
from docllm.schemas.runtime.clock import Clock

CLEAN_S = 3600.0

log = logging.getLogger("docllm.producer.serve")

_STATUS = {
    InputError: HTTPStatus.BAD_REQUEST,
    ConfigError: HTTPStatus.BAD_REQUEST,
    UnsafeStateError: HTTPStatus.CONFLICT,
    UnreachableError: HTTPStatus.SERVICE_UNAVAILABLE,
}


@asynccontextmanager
async def application(
    parts: Parts, *, hosts: Collection[str] = (), bounds: Bounds | None = None
) -> AsyncIterator[Gate]:
    """Yield the application of a group; `hosts` are further names of the server."""
    uploads = Uploads(parts.config.uploads_folder, parts.clock)
    loads = FileLoads(parts, uploads)
    app = Starlette(
        routes=[
            Route(HEALTH, _health),
            *MetricsDoor(parts).routes,
            *TaskDoor(parts).routes,
            *OpenAIDoor(parts, uploads, loads).routes,
        ],
        exception_handlers={
            DenyError: _refused,
            HTTPException: _unknown,
            DocllmError: _failed,
            ClientDisconnect: _gone,
            Exception: _broken,
        },
    )
    app.router.redirect_slashes = False
    cleaning = asyncio.create_task(_clean(uploads, parts.clock))
    try:
        await loads.resume()
        yield Gate(app, hosts=hosts, token=parts.config.http_token, bounds=bounds or Bounds())
    finally:
        cleaning.cancel()
        await loads.close()


async def _clean(uploads: Uploads, clock: Clock) -> None:
    """Delete uploaded files whose time is over, every hour until cancelled."""
    while True:
        await asyncio.to_thread(uploads.clean)
        await clock.sleep(CLEAN_S)


async def _health(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DenyError)  # noqa: S101 - its handlers are called by class
    return error.answer()


async def _unknown(request: Request, error: Exception) -> Response:
    """Answer a request for a path or method that no door has, or one that cannot be read."""
    assert isinstance(error, HTTPException)  # noqa: S101 - see above
    return DenyError(
        HTTPStatus(error.status_code),
        f"{request.method} {request.url.path}: {error.detail}",
        headers=error.headers,
    ).answer()


async def _failed(_request: Request, error: Exception) -> Response:
    kinds = (kind for kind in _STATUS if isinstance(error, kind))
    return DenyError(_STATUS[next(kinds)], str(error)).answer()


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it


async def _broken(request: Request, error: Exception) -> Response:
    log.error(
        "%s %s cannot be answered",
        request.method,
        request.url.path,
        exc_info=error,
        extra={"code": Code.INTERNAL_ERROR},
    )
    return DenyError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "the server has failed; see its log"
    ).answer()
