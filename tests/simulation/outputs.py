"""An object store in memory, for results outside the ledger.

A write may take long, fail, or arrive although its answer is lost.
"""

import hashlib
from dataclasses import dataclass, field

from docllm.schemas.objects.errors import ObjectError, ObjectFault
from tests.simulation.eventloop import VirtualClock
from tests.simulation.weather import Weather

OUTPUTS = "s3://sim/out/"


@dataclass(slots=True)
class SimOutputs:
    """The objects by URI. `overwritten` has the URIs that were written twice."""

    weather: Weather
    clock: VirtualClock
    objects: dict[str, bytes] = field(default_factory=dict)
    overwritten: list[str] = field(default_factory=list)

    async def put_new(self, uri: str, content: bytes) -> None:
        """Write an object that does not exist yet."""
        await self._answer(uri)
        if uri in self.objects:
            raise ObjectError(ObjectFault.EXISTS, f"{uri} exists already")
        self.write(uri, content)
        if self.weather.strikes("put_lost"):
            raise ObjectError(ObjectFault.OUTAGE, f"no answer came about {uri}")
        await self.clock.sleep(self.weather.delay_s("put", 0.01))

    async def put(self, uri: str, content: bytes) -> None:
        """Write an object, whatever has its name."""
        await self._answer(uri)
        self.write(uri, content)
        if self.weather.strikes("put_lost"):
            raise ObjectError(ObjectFault.OUTAGE, f"no answer came about {uri}")

    def write(self, uri: str, content: bytes) -> None:
        """Write an object, whatever is there."""
        if self.objects.get(uri, content) != content:
            self.overwritten.append(uri)
        self.objects[uri] = content

    async def get(self, uri: str, *, limit: int) -> bytes:
        """Return an object."""
        await self._answer(uri)
        if uri not in self.objects:
            raise ObjectError(ObjectFault.MISSING, f"{uri} does not exist")
        if len(self.objects[uri]) > limit:
            raise ObjectError(ObjectFault.TOO_LARGE, f"{uri} is larger")
        return self.objects[uri]

    async def sha256(self, uri: str, *, limit: int) -> str:
        """Return the digest of an object."""
        return hashlib.sha256(await self.get(uri, limit=limit)).hexdigest()

    async def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of the objects in a folder, with their sizes."""
        await self._answer(folder)
        return {
            uri.removeprefix(folder): len(content)
            for uri, content in self.objects.items()
            if uri.startswith(folder)
        }

    async def _answer(self, uri: str) -> None:
        await self.clock.sleep(self.weather.delay_s("put", 0.01))
        if self.weather.strikes("put_fails"):
            raise ObjectError(ObjectFault.OUTAGE, f"{uri} cannot be had at the moment")
