"""Refusals of requests, in the form of OpenAI's API at every door."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

_BAD, _FAILED = "invalid_request_error", "server_error"


class DenyError(Exception):
    """A request that is not served: its status, and what to do.

    `param` names the part of the request that is wrong, `code` the problem. `also` are the fields
    that the answer has beside the error.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        also: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = headers
        self.also = also or {}

    def answer(self) -> JSONResponse:
        """Return the answer to the request."""
        is_ours = self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        error = {
            "message": str(self),
            "type": _FAILED if is_ours else _BAD,
            "param": self.param,
            "code": self.code,
        }
        return JSONResponse({"error": error, **self.also}, self.status, self.headers)
