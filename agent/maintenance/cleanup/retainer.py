"""The duty that archives batches that have been final for long, and purges what is too old.

One agent of the group at a time has the turn for this work, as long as it renews the turn. If two
agents do the work, no harm is done: they write the same files, and each step of a purge may be
repeated.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial

from docllm.agent.ledger.leases import duty_turns
from docllm.producer.ledger.audit import AGENT
from docllm.producer.ledger.retention import archive_rows, purge_rows
from docllm.producer.ledger.store import Batch
from docllm.producer.retention.archiver import Archiver
from docllm.producer.retention.manifest import ArchiveStore
from docllm.producer.retention.purge import purge
from docllm.schemas.errors import DocllmError, UnreachableError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.settings.config import RetentionConfig

TURN_S = 300.0
RENEW_S = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class Retainer:
    """Archives and purges the batches of a group, the oldest first."""

    transactions: Transactions
    clock: Clock
    group: str
    settings: RetentionConfig
    archiver: Archiver
    store: ArchiveStore
    _turn: int = field(default=0, init=False)
    # Two renewals at once would take the turn from each other.
    _taking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def retain(self) -> int:
        """Archive and purge what is due; return how many batches that were.

        A batch that fails does not hold up the others. Raises the first failure at the end.
        """
        failures: list[Exception] = []
        verified: set[str] = set()  # URIs of the archives that were read back in this round
        done = 0
        steps = [(self._archive, False)]
        if self.settings.purge_after_s is not None:
            steps.append((self._purge, True))
        for put_away, archived in steps:
            if not await self._take_turn():
                break
            quiet = partial(
                archive_rows.quiet, age_s=self.settings.archive_after_s, archived=archived
            )
            for target in await self.transactions.read(quiet, self.group):
                if not await self._take_turn():
                    break
                try:
                    await put_away(target, verified)
                except ObjectError as error:
                    failures.append(UnreachableError(f"batch {target.name!r}: {error}"))
                except DocllmError as error:
                    failures.append(error)
                else:
                    done += 1
        if failures:
            raise failures[0]
        return done

    async def keep_turn(self) -> None:
        """Renew the turn if this agent has it: a batch may take longer than a turn."""
        if self._turn:
            await self._take_turn()

    async def _archive(self, target: Batch, verified: set[str]) -> None:
        archive, _ = await self.archiver.archive(target, AGENT)
        verified.add(archive.uri)

    async def _purge(self, target: Batch, verified: set[str]) -> None:
        find = partial(self.transactions.read, purge_rows.find, self.group, target.name)
        purgeable_batch = await find()
        if purgeable_batch is not None and not purgeable_batch.is_archived:
            await self._archive(target, verified)  # a program before this one changed it
            purgeable_batch = await find()
        if purgeable_batch is not None:
            await purge(
                self.transactions,
                self.clock,
                purgeable_batch,
                store=self.store,
                actor=AGENT,
                just_verified=purgeable_batch.archived_to in verified,
            )

    async def _take_turn(self) -> bool:
        async with self._taking:
            self._turn = await self.transactions.write(
                duty_turns.take, f"retention of {self.group}", self._turn, TURN_S
            )
            return self._turn != 0
