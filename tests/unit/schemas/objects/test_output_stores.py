"""The store of a result is chosen by its URI."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.output_stores import OutputStores
from docllm.schemas.objects.store import ObjectContent, ObjectEntry, ObjectStores
from docllm.schemas.runtime.executors import InlineExecutor
from tests.support.doubles import stand_in


class FakeObjects:
    """Objects in memory."""

    def __init__(self) -> None:
        self.raw: dict[str, bytes] = {}

    async def put_new(self, uri: str, raw: bytes) -> None:
        self.raw[uri] = raw

    put = put_new

    async def get(self, uri: str, *, limit: int) -> ObjectContent:
        return ObjectContent(self.raw[uri][:limit], None)

    def entries(self, prefix: str) -> Iterator[ObjectEntry]:
        for uri, raw in self.raw.items():
            yield ObjectEntry(uri, uri.removeprefix(prefix), len(raw), None)


def test_files_and_objects_go_to_their_own_store(tmp_path: Path) -> None:
    """A file is written below the most fitting allowed folder only."""
    objects = FakeObjects()
    stores = OutputStores(
        executor=InlineExecutor(),
        objects=stand_in(ObjectStores, objects),
        allow=["s3://bucket/", f"file://{tmp_path}/"],
    )

    for uri in ("s3://bucket/x.json", f"file://{tmp_path}/new/x.json"):
        asyncio.run(stores.put_new(uri, b"x"))
        assert asyncio.run(stores.get(uri, limit=1)) == b"x"
        assert asyncio.run(stores.sizes(uri.removesuffix("x.json"))) == {"x.json": 1}

    assert list(objects.raw) == ["s3://bucket/x.json"]
    with pytest.raises(ObjectError) as caught:
        asyncio.run(stores.put_new("file:///elsewhere/x.json", b"x"))
    assert caught.value.fault is ObjectFault.WRONG_NAME

    for uri in ("s3://bucket/x.json", f"file://{tmp_path}/new/x.json"):
        asyncio.run(stores.put(uri, b"y"))
        assert asyncio.run(stores.get(uri, limit=1)) == b"y"
    for uri in ("s3://other/x.json", "file:///elsewhere/x.json"):
        with pytest.raises(ObjectError, match="is not below an allowed folder"):
            asyncio.run(stores.put(uri, b"y"))
