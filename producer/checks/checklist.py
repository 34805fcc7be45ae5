"""What `check` looks at: servers, schema, topics, the LLM, its routes, object stores.

A check changes nothing and shows no secret. It does not create missing embedded parts: the first
load or agent does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from redis.exceptions import NoPermissionError

from docllm.producer.app import (
    CHECK_TRIES,
    bus_path,
    is_bus_missing,
    is_ledger_missing,
    make_admin,
    open_database,
    until_up,
)
from docllm.producer.bus.topic_family import TopicFamily, with_old_tiers
from docllm.producer.checks import limits, needs, redis_rights
from docllm.producer.checks import llm as check_llm
from docllm.producer.ledger import rights
from docllm.producer.ledger.status import agent_status
from docllm.producer.retention.archiver import require_folder
from docllm.schemas.clients.redis import is_away, redis_client, redis_reason
from docllm.schemas.errors import (
    ConfigError,
    DeniedError,
    DocllmError,
    UnreachableError,
    UnsafeStateError,
)
from docllm.schemas.ledger import migrations, server_settings
from docllm.schemas.ledger.database import Database, DatabaseError
from docllm.schemas.ledger.errors import WHERE_GRANTS
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectStores
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.settings.account import account
from docllm.schemas.settings.config import DEFAULT_ROUTE, Config, LLMConfig, RetentionConfig, Secret
from docllm.schemas.settings.sources import LEDGER_FILE, require_llm
from docllm.schemas.task.record.topics import Topics

# Faults that do not keep agents from working: documents are retried later, and a key may allow only
# reading.
_PASSING = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED, ObjectFault.WRONG_NAME})


REDIS_TIMEOUT_S = 2.0
APPLY = "docllm topics apply"
COMPARE = "docllm topics check"
READS_ONLY = (
    "lets this user only read, which is enough for exporter, status, export, dead list, show, "
    "guard list, replay --list and replay --dry-run; all other programs need "
    "INSERT, UPDATE and DELETE too"
)
T = TypeVar("T")
TO_COME = "not there yet; the first load or agent creates"


async def listed(prefix: str) -> str:
    """Return what a listing of a prefix shows; nothing may be there yet, for results.

    Raises ConfigError and UnreachableError.
    """
    try:
        first_entry = await asyncio.to_thread(lambda: next(ObjectStores().entries(prefix), None))
    except ObjectError as error:
        if error.fault in _PASSING:
            raise UnreachableError(str(error)) from None
        raise ConfigError(str(error)) from None
    return "lists objects" if first_entry else "answers, and has no object yet"


async def description(settings: RetentionConfig, to: str) -> str:
    """Return what agents do with old batches, and when. `to` is where their archives go.

    Raises ConfigError if archives cannot lie there, and UnreachableError, which is no failure, if
    their store is away.
    """
    require_folder(to)
    if is_object_uri(to):
        await listed(to)
    purges = "deletes nothing"
    if settings.purge_after_s is not None:
        purges = "then deletes their rows"
    return f"archives to {to} after {settings.archive_after_s:,} s without a change; {purges}"


@dataclass(frozen=True, slots=True)
class Check:
    """One check; `run` returns a text about its success, or raises DocllmError with advice.

    If `needed` is false, docllm works without this part. The check is skipped if one in `after`
    failed, because it would report the same fault again.
    """

    name: str
    run: Callable[[], Awaitable[str]]
    needed: bool = True
    after: tuple[str, ...] = ()


class Checks:
    """The checks of one configuration, in the order in which they build on each other."""

    def __init__(self, config: Config, *, group: str) -> None:
        self._config = config
        self._group = group
        self._redis_works = False  # as the check of Redis found

    def all(self) -> list[Check]:
        """Return every check there is for this configuration."""
        checks = [
            Check("database", self._once_up("the database", self._database)),
            Check("schema", self._schema, after=("database",)),
        ]
        if self._config.database_url is not None:
            checks.append(Check("rights", self._rights, after=("database", "schema")))
        checks.append(Check("bus", self._once_up("Kafka", self._bus)))
        checks.append(Check("topics", self._topics, after=("database", "schema", "bus")))
        if self._config.redis_url is not None:
            checks.append(Check("redis", self._once_up("Redis", self._redis), needed=False))
        checks += [Check("llm", self._llm), *self._routes()]
        checks += [
            Check(f"documents {prefix}", partial(listed, prefix), needed=False)
            for prefix in self._config.document_allow
            if is_object_uri(prefix)
        ]
        if any(settings.handler is not None for settings in self._config.types.values()):
            checks.append(Check("handlers", partial(needs.handlers, self._config), needed=False))
        if self._config.prices:
            checks.append(Check("prices", partial(needs.prices, self._config), needed=False))
        if needs.lacks_documents():
            checks.append(Check("documents", needs.documents))
        if limits.has_limits(self._config):
            checks.append(Check("limits", self._limits, needed=False))
        if (archives := self._config.retention.archive) is not None:
            run = partial(description, self._config.retention, archives)
            checks.append(Check("retention", run, needed=False))
        return checks

    def _once_up(
        self, name: str, run: Callable[[], Awaitable[str]]
    ) -> Callable[[], Awaitable[str]]:
        """Return the same check of a server, which gives it the time of `--wait`."""
        return partial(until_up, name, run, self._config)

    async def _database(self) -> str:
        if is_ledger_missing(self._config):
            return f"{self._config.data_dir / LEDGER_FILE} is {TO_COME} it"

        def where(database: Database) -> str:
            if refused := database.run_singly(server_settings.refusing):
                raise UnsafeStateError(f"{database.where}: {refused}")
            return f"{database.where} answers"

        return await self._with_database(where)

    async def _schema(self) -> str:
        def compare(database: Database) -> str:
            if self._config.embedded and migrations.present_revision(database) is None:
                return f"{TO_COME} it"
            migrations.require(database)
            revision, own = migrations.present_revision(database), migrations.own_revision()
            newer = "" if revision == own else f", newer than {own} of this version, and serves it"
            return f"revision {revision}{newer}, ledger {database.run_singly(migrations.ledger_id)}"

        if is_ledger_missing(self._config):
            return f"{TO_COME} it"
        return await self._with_database(compare)

    async def _rights(self) -> str:
        def compare(database: Database) -> str:
            migrations.require(database)
            try:
                missing_rights = database.run(rights.missing)
            except DatabaseError as error:
                database.require_settings(error)
                cause = getattr(error, "orig", error)
                raise UnreachableError(f"{database.where} accepts no writes: {cause}") from None
            if rights.reads_only(missing_rights):
                raise DeniedError(f"{database.where} {READS_ONLY}; {WHERE_GRANTS}")
            if missing_rights:
                raise DeniedError(
                    f"{database.where} refuses {', '.join(missing_rights)}; {WHERE_GRANTS}"
                )
            return "reads, writes, deletes and locks"

        return await self._with_database(compare)

    def _open_database(self) -> Database:
        return open_database(self._config, connections=1, tries=CHECK_TRIES)

    async def _with_database(self, work: Callable[[Database], T]) -> T:
        def run() -> T:
            database = self._open_database()
            try:
                return work(database)
            finally:
                database.close()

        return await asyncio.to_thread(run)

    async def _bus(self) -> str:
        if is_bus_missing(self._config):
            return f"{bus_path(self._config)} is {TO_COME} it"
        admin = make_admin(self._config, SystemClock())
        try:
            cluster_id = await admin.cluster_id()
            return f"{self._config.kafka.bootstrap or 'embedded'}, cluster {cluster_id}"
        finally:
            await admin.close()

    async def _topics(self) -> str:
        if (await self._schema()).startswith(TO_COME):
            return f"{TO_COME} them"
        clock = SystemClock()
        configured = Topics(
            self._group, self._config.retry_tiers, results=self._config.results_topic
        )
        async with AsyncExitStack() as opened:
            database = await asyncio.to_thread(self._open_database)
            opened.callback(database.close)
            executor = ThreadExecutor("check")
            opened.callback(executor.close)
            transactions = Transactions(database=database, executor=executor)
            topics = await transactions.read(with_old_tiers, configured)
            admin = make_admin(self._config, clock)
            opened.push_async_callback(admin.close)
            family = TopicFamily(admin=admin, transactions=transactions, topics=topics, clock=clock)
            return await self._compare(family)

    async def _compare(self, family: TopicFamily) -> str:
        """Compare the topics with what the ledger says of them."""
        if self._config.embedded and await family.stored_ids() is None:
            return f"{TO_COME} them"
        if is_bus_missing(self._config):
            raise UnsafeStateError(
                f"they were in {bus_path(self._config)}, which is gone; run: "
                f"{APPLY} --group {self._group}"
            )
        never_made = await family.never_made() if self._config.embedded else []
        stored = await family.require(leave_out=never_made)
        hidden_settings = await family.hidden_settings()
        if never_made:
            return (
                f"{', '.join(never_made)}: not there yet; "
                "the next load or agent creates what is missing"
            )
        hidden_note = (
            f"; unknown settings: {len(hidden_settings)}, see: {COMPARE} --group {self._group}"
            if hidden_settings
            else ""
        )
        advice = "".join(f"; {line}" for line in await family.advice())
        return (
            f"{len(stored.topic_ids)} topics of group {self._group} are as they should "
            f"be{hidden_note}{advice}"
        )

    async def _redis(self) -> str:
        url = self._config.redis_url or Secret("")
        try:
            async with redis_client(url, timeout_s=REDIS_TIMEOUT_S) as client:
                server = await client.info("server")
                version = server.get("redis_version", "that it does not tell")
                memory = await client.info("memory")
                refused = await redis_rights.refused_commands(client, self._group)
        except NoPermissionError:
            refused = "INFO"
        except (TypeError, ValueError) as error:
            raise ConfigError(redis_reason(error, url)) from None
        except Exception as error:  # noqa: BLE001 - agents run whatever Redis or its client does
            raise UnreachableError(
                f"does not answer ({redis_reason(error, url)}); agents run without it; "
                "check DOCLLM_REDIS_URL",
                may_pass=is_away(error),
            ) from None
        if refused:
            grant = f"ACL SETUSER NAME {redis_rights.ENOUGH}"
            raise DeniedError(f"refuses {refused} to its user; agents run without it; run: {grant}")
        self._redis_works = True
        policy = memory.get("maxmemory_policy", "noeviction")
        evicts = memory.get("maxmemory") and policy != "noeviction"
        advice = f"; it may evict the limits ({policy}): set its maxmemory-policy to noeviction"
        return f"version {version}{advice if evicts else ''}"

    async def _limits(self) -> str:
        others = [] if self._redis_works else await self._other_groups()
        return limits.description(self._config, redis_works=self._redis_works, other_groups=others)

    async def _other_groups(self) -> list[str]:
        """Return the other groups that have running agents; none if the ledger does not tell."""

        def read(database: Database) -> list[str]:
            migrations.require(database)
            return database.run_singly(lambda c: agent_status.other_groups(c, self._group))

        if is_ledger_missing(self._config):
            return []
        try:
            return await self._with_database(read)
        except (DocllmError, DatabaseError):  # the check of the database says why
            return []

    async def _llm(self) -> str:
        require_llm(self._config)
        return await check_llm.ask(
            account(self._config, DEFAULT_ROUTE),
            DEFAULT_ROUTE if DEFAULT_ROUTE in self._config.routes else None,
        )

    def _routes(self) -> list[Check]:
        """Return a check for each route whose account or model differs from earlier ones.

        The check `llm` covers the default route.
        """
        accounts, checks = {_identity(account(self._config, DEFAULT_ROUTE))}, []
        for name in sorted(self._config.routes.keys() - {DEFAULT_ROUTE}):
            llm = account(self._config, name)
            if llm.base_url is not None and _identity(llm) not in accounts:
                accounts.add(_identity(llm))
                checks.append(Check(f"route {name}", partial(check_llm.ask, llm, name)))
        return checks


def _identity(llm: LLMConfig) -> tuple[object, ...]:
    return llm.identity, llm.model, llm.structured


async def outcome(check: Check, failed: Container[str] = ()) -> tuple[int, str, str]:
    """Run one check, unless one that it depends on has `failed`.

    Returns the exit code (0 if docllm can work), one word, and the message.
    """
    before = [name for name in check.after if name in failed]
    if before:
        return 0, "-", f"not tried, because it needs what failed: {', '.join(before)}"
    try:
        return 0, "ok", await check.run()
    except UnreachableError as error:
        if not check.needed:
            return 0, "WARNING", str(error)
        return error.exit_code, "FAILED", str(error)
    except DocllmError as error:
        return error.exit_code, "FAILED", str(error)
    except DatabaseError as error:  # it answered when it was opened
        problem = f"the database no longer answers: {getattr(error, 'orig', None) or error}"
        return UnreachableError.exit_code, "FAILED", f"{problem}; run the check again"
