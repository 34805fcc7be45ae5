"""The pages of the exporter: the metrics of the group, and what an autoscaler asks.

The group is read when somebody asks, and at most every few seconds.
"""

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from docllm.producer.app import Parts
from docllm.producer.metrics.exporter import Exporter, GroupReaders
from docllm.producer.metrics.http_server import HttpPage
from docllm.producer.metrics.scale import ScaleLimits
from docllm.producer.serve.gate import HEALTH
from docllm.producer.serve.tasks import soon
from docllm.schemas.ledger import migrations


class MetricsDoor:
    """Serves what `docllm exporter` serves."""

    def __init__(self, parts: Parts) -> None:
        self._readers = GroupReaders(parts.transactions, parts.admin, parts.topics)
        self._exporter = Exporter(
            group=parts.topics.group,
            config=parts.config,
            scale_limits=ScaleLimits(),
            clock=parts.clock,
            schema=migrations.own_revision(),
        )
        self._reading = asyncio.Lock()

    @property
    def routes(self) -> list[Route]:
        """The paths of this door."""
        return [
            Route(path, partial(self._page, page))
            for path, page in self._exporter.pages.items()
            if path != HEALTH
        ]

    async def _page(self, page: HttpPage, _request: Request) -> Response:
        async with self._reading:
            if self._exporter.is_due():
                await soon(self._exporter.read(self._readers))
        answer = await asyncio.to_thread(page.answer)
        return Response(answer.body, answer.status, media_type=answer.content_type)
