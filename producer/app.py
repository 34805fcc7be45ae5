"""The producer's composition root: opens the parts that a command needs, and closes them.

The parts are database, bus and publisher. The agent's own root builds on `Parts` too. No other
module creates an adapter.
"""

import asyncio
import fcntl
import itertools
import logging
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from docllm.producer.bus.embedded.life_lock import LOCK_FOLDERS
from docllm.producer.bus.embedded.mount import refuse_network
from docllm.producer.ports import Publisher, TopicAdmin, TopicReader
from docllm.producer.text.private_files import make_file, make_folder, warn_of_others
from docllm.producer.tracing import names
from docllm.schemas.clients.kafka import outage_of
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, DocllmError, UnreachableError
from docllm.schemas.ledger import migrations
from docllm.schemas.ledger.database import TIMEOUT_S, Database, DatabaseError
from docllm.schemas.ledger.errors import too_long
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock, SystemClock
from docllm.schemas.runtime.executors import ThreadExecutor
from docllm.schemas.runtime.outage import Outage
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import LEDGER_FILE, ledger_url
from docllm.schemas.task.record.topics import Topics

if TYPE_CHECKING:  # a command that only reads the ledger needs none of them
    from docllm.producer.bus.topic_family import TopicFamily
    from docllm.producer.publishing.relay import Relay
    from docllm.producer.tracing.publications import PublicationTraces
    from docllm.producer.tracing.spans import Spans

log = logging.getLogger(__name__)
log.setLevel(logging.INFO)  # commands log warnings only
T = TypeVar("T")

BUS_FILE = "bus.sqlite"
LOCK_FILE = "setup.lock"
SCREEN_S = 300  # time limit of one read of a screen
CHECK_TRIES = 5  # of each transaction of `check`, which ends if the database does not answer
_LOCK_POLL_S = 0.05
_UP_POLL_S = 0.5
_POLLS_UNTIL_WARNING = 60
_ELSEWHERE = "allow it, or name another one with DOCLLM_DATA_DIR"


@dataclass(slots=True)
class Parts:
    """The parts that a program works with. Publisher and admin are closed with them.

    `config` is replaced when an agent reads its settings again. `spans` takes what is traced, and
    `traces` names the spans of publications; both are None if nothing is traced.
    """

    config: Config
    topics: Topics
    clock: Clock
    transactions: Transactions
    admin: TopicAdmin
    publisher: Publisher
    family: "TopicFamily"
    ledger_id: str
    kafka: Outage
    spans: "Spans | None" = None
    traces: "PublicationTraces | None" = None


def bus_path(config: Config) -> Path:
    """Return the path of the embedded bus's file."""
    return config.data_dir / BUS_FILE


def is_ledger_missing(config: Config) -> bool:
    """Return whether the ledger is embedded and not yet created."""
    is_embedded = config.embedded and config.database_url is None
    return is_embedded and not _exists(config.data_dir / LEDGER_FILE)


def is_bus_missing(config: Config) -> bool:
    """Return whether the bus is embedded and not yet created."""
    return config.embedded and not _exists(bus_path(config))


def _exists(path: Path) -> bool:
    """Return whether the file exists. Raises ConfigError if the folder cannot be read."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(
            f"the data folder {path.parent} cannot be read: {error.strerror}; {_ELSEWHERE}"
        ) from None
    return True


async def until_up(
    name: str, ask: Callable[[], Awaitable[T]], config: Config, *, clock: Clock | None = None
) -> T:
    """Return what `ask` returns; while `--wait` lasts, ask a server again that is not up yet.

    A server that refuses is up. Raises what `ask` raises.
    """
    clock = clock or SystemClock()
    began_s: float | None = None
    while True:
        try:
            answer = await ask()
        except UnreachableError as error:
            now_s = clock.now_s()
            left_s = config.up_by_s - now_s
            if left_s <= 0 or not error.may_pass:
                raise
            if began_s is None:
                began_s, text = now_s, "%s; docllm tries again for up to %.0f s"
                log.warning(text, error, left_s, extra={"code": Code.SERVER_AWAY})
            await clock.sleep(min(_UP_POLL_S, left_s))
        else:
            if began_s is not None:
                log.info("%s answers, after %.0f s", name, clock.now_s() - began_s)
            return answer


def open_database(
    config: Config,
    *,
    connections: int = 4,
    timeout_s: int | None = TIMEOUT_S,
    reads_s: int | None = None,
    tries: int | None = None,
) -> Database:
    """Return the ledger's database; create the data folder of an embedded one.

    Raises UnreachableError and ConfigError.
    """
    if config.embedded:
        _make_folder(config.data_dir)
        _require_rights(config.data_dir)
        refuse_network(config.data_dir)
        warn_of_others(config.data_dir)
        if config.database_url is None:
            make_file(config.data_dir / LEDGER_FILE)
    url = ledger_url(config)
    database = Database(
        url, connections=connections, timeout_s=timeout_s, reads_s=reads_s, tries=tries
    )
    try:
        database.require_usable()
    except DocllmError:
        database.close()
        raise
    return database


def _make_folder(path: Path) -> None:
    try:
        make_folder(path)
    except OSError as error:
        raise ConfigError(
            f"the data folder {path} cannot be made: {error.strerror}; "
            "name another one with DOCLLM_DATA_DIR"
        ) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"the data folder {path} cannot be written; {_ELSEWHERE}")


def _require_rights(folder: Path) -> None:
    """Raise ConfigError if another user's files in the data folder are closed to us.

    SQLite would only say that it cannot open them, as it does for a file that is about to be
    created.
    """
    files = [f"{name}{part}" for name in (LEDGER_FILE, BUS_FILE) for part in ("", "-wal", "-shm")]
    needed = dict.fromkeys(files, os.R_OK | os.W_OK)
    needed |= dict.fromkeys(LOCK_FOLDERS, os.R_OK | os.W_OK | os.X_OK)
    for name, rights in needed.items():
        if _exists(folder / name) and not os.access(folder / name, rights):
            raise ConfigError(
                f"{name} of the data folder {folder} cannot be read and written; {_ELSEWHERE}"
            )


def make_admin(config: Config, clock: Clock, outage: Outage | None = None) -> TopicAdmin:
    """Return the topic administration of the configured bus."""
    if config.embedded:
        # A program loads only the adapters that it uses.
        from docllm.producer.bus.embedded.admin import EmbeddedTopicAdmin  # noqa: PLC0415

        return EmbeddedTopicAdmin(bus_path(config))
    from docllm.producer.bus.kafka.admin import KafkaTopicAdmin  # noqa: PLC0415 - if used

    return KafkaTopicAdmin(config=config.kafka, clock=clock, outage=outage)


def make_publisher(config: Config, clock: Clock, outage: Outage | None = None) -> Publisher:
    """Return the publisher of the configured bus."""
    if config.embedded:
        from docllm.producer.bus.embedded.publisher import EmbeddedPublisher  # noqa: PLC0415 - if used

        return EmbeddedPublisher(bus_path(config))
    from docllm.producer.bus.kafka.publisher import KafkaPublisher  # noqa: PLC0415 - if used

    return KafkaPublisher(config=config.kafka, clock=clock, outage=outage)


def make_reader(config: Config, clock: Clock) -> TopicReader:
    """Return the whole-topic reader of the configured bus."""
    if config.embedded:
        from docllm.producer.bus.embedded.reader import EmbeddedTopicReader  # noqa: PLC0415 - if used

        return EmbeddedTopicReader(bus_path(config))
    from docllm.producer.bus.kafka.reader import KafkaTopicReader  # noqa: PLC0415 - if used

    return KafkaTopicReader(config=config.kafka, clock=clock)


def make_relay(parts: Parts) -> "Relay":
    """Return a relay of the group's publish orders."""
    from docllm.producer.publishing.relay import Relay  # noqa: PLC0415 - see above

    return Relay(
        transactions=parts.transactions,
        publisher=parts.publisher,
        topics=parts.topics,
        clock=parts.clock,
        traces=parts.traces,
    )


@dataclass(frozen=True, slots=True)
class LedgerParts:
    """The parts of a program that needs no bus."""

    transactions: Transactions
    ledger_id: str


@asynccontextmanager
async def opened_ledger(
    config: Config, *, connections: int = 1, reads_s: int | None = None
) -> AsyncIterator[LedgerParts]:
    """Open the ledger and check its schema; create a missing embedded ledger.

    `reads_s` limits each read of a screen, because some reads of a large ledger take minutes.
    Raises UnreachableError and UnsafeStateError.
    """
    opening = partial(open_database, config, connections=connections, reads_s=reads_s)
    database = await until_up("the database", partial(asyncio.to_thread, opening), config)
    executor = ThreadExecutor("database", threads=connections)
    transactions = Transactions(database=database, executor=executor)
    try:
        try:
            async with _setup_lock(config):
                await executor(lambda: _require_schema(config, database))
            ledger_id = await transactions.read(migrations.ledger_id)
        except asyncio.CancelledError:
            database.abandon()
            raise
        yield LedgerParts(transactions, ledger_id)
    except DatabaseError as error:
        if not too_long(error):
            raise
        raise UnreachableError(
            f"{database.where} did not answer within {reads_s} s; select less, or try again later"
        ) from None
    finally:
        database.close()
        executor.close()


@asynccontextmanager
async def opened(
    config: Config, group: str, *, check_topics: bool = True, connections: int = 4
) -> AsyncIterator[Parts]:
    """Open ledger and bus, check schema and topics, and create missing embedded ones.

    Raises UnreachableError and UnsafeStateError.
    """
    from docllm.producer.bus.topic_family import TopicFamily, with_old_tiers  # noqa: PLC0415
    from docllm.producer.tracing.opening import open_spans  # noqa: PLC0415 - see above

    clock = SystemClock()
    configured = Topics(group, config.retry_tiers, results=config.results_topic)
    async with opened_ledger(config, connections=connections) as ledger:
        topics = await ledger.transactions.read(with_old_tiers, configured)
        await _until_kafka_is_up(config, topics, clock)
        kafka = outage_of(config.kafka, clock)
        spans = open_spans(config.otel, os.environ)
        traces = None if spans is None else _traces(config, spans, ledger.ledger_id)
        admin, publisher = make_admin(config, clock, kafka), make_publisher(config, clock, kafka)
        if traces is not None:
            from docllm.producer.tracing.publications import TracedPublisher  # noqa: PLC0415

            publisher = TracedPublisher(publisher, traces=traces, clock=clock)
        family = TopicFamily(
            admin=admin, transactions=ledger.transactions, topics=topics, clock=clock
        )
        try:
            if check_topics:
                async with _setup_lock(config):
                    await _require_topics(config, family)
            yield Parts(
                config,
                topics,
                clock,
                ledger.transactions,
                admin,
                publisher,
                family,
                ledger.ledger_id,
                kafka,
                spans,
                traces,
            )
        finally:
            await publisher.close()
            await admin.close()
            if spans is not None:
                await asyncio.to_thread(spans.close)


async def _until_kafka_is_up(config: Config, topics: Topics, clock: Clock) -> None:
    if config.embedded or config.up_by_s <= clock.now_s():
        return
    silent = Outage(name="Kafka", clock=clock, patience_s=math.inf)
    admin = make_admin(config, clock, silent)
    try:
        await until_up("Kafka", lambda: admin.describe(topics.names[:1]), config)
    finally:
        await admin.close()


def _traces(config: Config, spans: "Spans", ledger_id: str) -> "PublicationTraces":
    from docllm.producer.tracing.publications import PublicationTraces  # noqa: PLC0415

    return PublicationTraces(
        spans=spans, ledger=ledger_id, ratio=config.otel.ratio, system=messaging_system(config)
    )


def messaging_system(config: Config) -> str:
    """Return what spans name as the system that carries records."""
    return "docllm" if config.embedded else names.KAFKA


@asynccontextmanager
async def _setup_lock(config: Config) -> AsyncIterator[None]:
    """Hold the setup lock: only one of several starting programs creates the embedded parts."""
    if not config.embedded:
        yield
        return
    with _lock_file(config.data_dir) as file:
        await _wait_for_lock(file)
        yield


async def _wait_for_lock(file: BinaryIO) -> None:
    """Wait for the lock by polling on the event loop.

    A thread that waits for the lock would delay the end of a program that is asked to stop.
    """
    for count in itertools.count():
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if count == _POLLS_UNTIL_WARNING:
                log.warning(
                    "waiting for %s, which another program holds while it starts", file.name
                )
            await asyncio.sleep(_LOCK_POLL_S)
        else:
            return


def _lock_file(folder: Path) -> BinaryIO:
    path = folder / LOCK_FILE
    make_file(path)
    try:
        return path.open("wb")
    except OSError as error:
        raise ConfigError(
            f"{LOCK_FILE} of the data folder {folder} cannot be written: {error.strerror}; "
            f"{_ELSEWHERE}"
        ) from None


def _require_schema(config: Config, database: Database) -> None:
    if config.embedded and migrations.present_revision(database) is None:
        migrations.migrate(database)
    migrations.require(database)


async def _require_topics(config: Config, family: "TopicFamily") -> None:
    from docllm.producer.bus.topic_family import EMBEDDED_PARTITIONS  # noqa: PLC0415

    if config.embedded and await family.never_made():
        await family.apply(None, None, default=EMBEDDED_PARTITIONS)
    await family.require()
