"""The duty that archives batches that have been final for long, and purges what is too old.

One agent of the group at a time has the turn for this work, as long as it renews the turn. If two
agents do the work, no harm is done: they write the same files, and each step of a purge may be
repeated.
"""

import asyncio
from functools import partial

from docllm.agent.ledger.leases import duty_turns
from docllm.producer.ledger.audit import AGENT
from docllm.producer.ledger.retention import archive_rows, purge_rules
from docllm.producer.ledger.store import Batch
from docllm.producer.retention.archiver import Archiver
from docllm.producer.retention.presence import ArchiveStore
from docllm.producer.retention.purge import purge
from docllm.schemas.errors import DocllmError, UnreachableError
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.settings.config import RetentionConfig

TURN_S = 300.0
RENEW_S = 60.0


class Retainer:
    """Archives and purges the batches of a group, the oldest first."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        group: str,
        settings: RetentionConfig,
        archiver: Archiver,
        store: ArchiveStore,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self._settings = settings
        self._archiver = archiver
        self._store = store
        self._turn = 0
        self._taking = asyncio.Lock()  # two renewals at once would take the turn from each other

    async def retain(self) -> int:
        """Archive and purge what is due; return how many batches that were.

        A batch that fails does not hold up the others. Raises the first failure at the end.
        """
        failures: list[Exception] = []
        verified: set[str] = set()  # URIs of the archives that were read back in this round
        done = 0
        steps = [(self._archive, False)]
        if self._settings.purge_after_s is not None:
            steps.append((self._purge, True))
        for put_away, archived in steps:
            if not await self._take_turn():
                break
            quiet = partial(
                archive_rows.quiet, age_s=self._settings.archive_after_s, archived=archived
            )
            for target in await self._transactions.read(quiet, self._group):
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
        archive, _ = await self._archiver.archive(target, AGENT)
        verified.add(archive.uri)

    async def _purge(self, target: Batch, verified: set[str]) -> None:
        find = partial(self._transactions.read, purge_rules.find, self._group, target.name)
        purgeable_batch = await find()
        if purgeable_batch is not None and not purgeable_batch.is_archived:
            await self._archive(target, verified)  # a program before this one changed it
            purgeable_batch = await find()
        if purgeable_batch is not None:
            await purge(
                self._transactions,
                self._clock,
                purgeable_batch,
                store=self._store,
                actor=AGENT,
                just_verified=purgeable_batch.archived_to in verified,
            )

    async def _take_turn(self) -> bool:
        async with self._taking:
            self._turn = await self._transactions.write(
                duty_turns.take, f"retention of {self._group}", self._turn, TURN_S
            )
            return self._turn != 0
