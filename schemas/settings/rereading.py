"""The duty that reads the settings again, and has a change of them applied as a whole.

A file that is still being written may already parse. So a change is applied only when two reads in
a row gave the same settings, or immediately if a person sent a signal. Invalid settings are
reported, and the previous settings stay in use.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.settings.changes import changed_settings
from docllm.schemas.settings.config import Config
from docllm.schemas.text.untrusted import describe_error

log = logging.getLogger(__name__)

TICK_S = 0.5
CHECK_EVERY_S = 5.0
LISTED_NAMES = 10


class SettingsReader:
    """Reads one agent's settings again and again.

    `load` reads all of them and raises ConfigError for a fault; it runs on `executor`. `apply`
    makes the agent use them, or raises ConfigError and changes nothing. UnreachableError means that
    the next read tries again. `refused` is told why a change is not used; an empty text takes that
    back. `request` is set by a signal.
    """

    def __init__(
        self,
        *,
        config: Config,
        load: Callable[[], Config],
        apply: Callable[[Config], Awaitable[None]],
        refused: Callable[[str], None],
        request: asyncio.Event,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self._used = config
        self._load = load
        self._apply = apply
        self._refused = refused
        self._request = request
        self._executor = executor
        self._clock = clock
        # The last read: settings, or the text of their fault.
        self._decided: Config | str = config
        self._seen: Config | str = config
        self._read_at_s = clock.now_s()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self._clock.sleep(TICK_S)
            if asked := self._request.is_set():
                self._request.clear()
            if asked or self._clock.now_s() - self._read_at_s >= CHECK_EVERY_S:
                self._read_at_s = self._clock.now_s()
                await self.reread(asked=asked)

    async def reread(self, *, asked: bool = False) -> None:
        """Read the settings once; decide about them if they changed and are whole."""
        before, self._seen = self._seen, await self._read()
        if self._seen == self._decided:
            if asked:
                log.info("the settings have not changed")
        elif asked or self._seen == before:
            await self._decide(self._seen)

    async def _read(self) -> Config | str:
        try:
            fresh = await self._executor(self._load)
        except ConfigError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - no file may end an agent that runs
            return describe_error(error)
        if self._used.file is not None and fresh.file is None:
            return f"{self._used.file} is gone"
        return fresh

    async def _decide(self, seen: Config | str) -> None:
        self._decided = seen
        if isinstance(seen, str):
            self._refuse(seen)
        elif seen == self._used:
            log.info("the settings file is back to the settings in use")
            self._refused("")
        else:
            await self._use(seen)

    async def _use(self, fresh: Config) -> None:
        try:
            await self._apply(fresh)
        except ConfigError as error:
            self._refuse(str(error))
        except UnreachableError as error:
            self._decided = self._used
            self._refuse(str(error))
        except Exception as error:
            log.exception("changed settings cannot be used", extra={"code": Code.INTERNAL_ERROR})
            self._refuse(describe_error(error))
        else:
            log.info(
                "the changed settings are in use: %s", _listed(changed_settings(self._used, fresh))
            )
            self._used = fresh
            self._refused("")

    def _refuse(self, why: str) -> None:
        text = "; ".join(why.splitlines())
        log.error(
            "the changed settings are not used and the previous ones stay in use: %s",
            text,
            extra={"code": Code.SETTINGS_REFUSED},
        )
        self._refused(text)


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
    return f"{', '.join(names[:LISTED_NAMES])}{rest}"
