"""Faults of the servers as processes: kills that keep their files, freezes, a full disk."""

import signal
import time
from collections.abc import Callable

import redis

from tests.faults.fault import Cost, Fault, Kind
from tests.faults.site import AGENTS, Site
from tests.servers import Server, ServerFailedError

LARGE, LARGE_BYTES = 60, 60_000  # tasks, whose texts do not compress


def killed(part: str) -> Callable[[Fault], None]:
    """Return the fault that kills a server, and starts it again on its files."""

    def act(fault: Fault) -> None:
        server, before = _server(fault.site, part), _met(fault.site, part)
        fault.begin(part, *AGENTS)
        server.kill()
        fault.hold(lambda: _met(fault.site, part) > before)
        fault.evidence["failed"] = _met(fault.site, part) - before
        server.start()

    return act


def frozen(part: str) -> Callable[[Fault], None]:
    """Return the fault that freezes a server, then resumes it."""

    def act(fault: Fault) -> None:
        server = _server(fault.site, part)
        fault.begin(part, *AGENTS)
        server.freeze()
        reached = _reached(fault.site, part)
        fault.hold(lambda: _reached(fault.site, part) > reached)
        fault.bit = fault.bit and not server.ready()
        fault.evidence["reached"] = _reached(fault.site, part) - reached
        server.thaw()

    return act


def llm_killed(fault: Fault) -> None:
    """Kill the LLM, and start it again."""
    before = _met(fault.site, "llm")
    fault.begin("llm", *AGENTS)
    fault.site.spawn(fault.site.llm.end).result()
    fault.site.log.note("llm", name=fault.site.llm.name)
    fault.hold(lambda: _met(fault.site, "llm") > before)
    fault.site.start_llm()


def llm_frozen(fault: Fault) -> None:
    """Freeze the LLM, then resume it."""
    fault.begin("llm", *AGENTS)
    fault.site.llm.signal(signal.SIGSTOP)
    reached = _reached(fault.site, "llm")
    fault.hold(lambda: _reached(fault.site, "llm") > reached)
    fault.site.llm.signal(signal.SIGCONT)


def disk_full(fault: Fault) -> None:
    """Leave no space on MariaDB's disk while large tasks are loaded; MariaDB may even die."""
    site = fault.site
    if site.disk is None:
        return
    path, names = site.traffic.batch(
        LARGE, input={"text": fault.chance.randbytes(LARGE_BYTES).hex()}
    )
    fault.begin("database", *AGENTS)
    logged_bytes = site.database.log.stat().st_size
    site.disk.fill()
    try:
        load = site.tool("load", path)
        fault.hold(lambda: _no_room(site, logged_bytes))
    finally:
        site.disk.clear()
        died = _revived(site.database)
    fault.evidence["refused"] = _no_room(site, logged_bytes)
    # A rollback that found no space may kill MariaDB some seconds later.
    while load.running:
        died = _revived(site.database) or died
        time.sleep(1)
    fault.evidence["died"] = died
    load.wait()
    site.traffic.load(path, names)


def _no_room(site: Site, since: int) -> int:
    """Return how often a file of the ledger could not grow."""
    log_lines = site.database.log.read_bytes()[since:]
    return log_lines.count(b"failed with error 28")


def _revived(server: Server) -> bool:
    """Return whether the server had died, and is running again."""
    try:
        _ = server.pid
    except ServerFailedError:
        server.kill()
        server.start()
        return True
    return False


def flushed(fault: Fault) -> None:
    """Delete everything in Redis."""
    with redis.Redis.from_url(fault.site.redis.url) as client:
        fault.begin("redis", *AGENTS)
        fault.hold(client.dbsize)
        fault.evidence["keys"] = client.dbsize()
        client.flushall()
        fault.evidence["left"] = client.dbsize()


def _server(site: Site, part: str) -> Server:
    return {"kafka": site.kafka, "database": site.database, "redis": site.redis}[part]


def _met(site: Site, part: str) -> int:
    """Return how many connections to a server have failed so far."""
    return _sum(site, part, "failed")


def _reached(site: Site, part: str) -> int:
    """Return how many bytes and connections went to and from a server so far.

    A frozen server sends none.
    """
    return _sum(site, part, "carried", "connections")


def _sum(site: Site, part: str, *names: str) -> int:
    door_counts = [site.proxy.ever(door) for door in site.doors_of(part)]
    return sum(counts.get(name, 0) for counts in door_counts for name in names)


KINDS = (
    Kind("kafka-kill", killed("kafka"), ("kafka",), (2, 10)),
    Kind("kafka-freeze", frozen("kafka"), ("kafka",), (4, 20)),
    Kind("database-kill", killed("database"), ("database",), (2, 15), Cost.LEASE),
    Kind("database-freeze", frozen("database"), ("database",), (4, 20), Cost.LEASE),
    Kind("database-disk-full", disk_full, ("database",), (5, 12), Cost.LEASE, root=True),
    Kind("redis-kill", killed("redis"), ("redis",), (2, 15)),
    Kind("redis-freeze", frozen("redis"), ("redis",), (4, 15)),
    Kind("redis-flushall", flushed, ("redis",), (0, 1)),
    Kind("llm-kill", llm_killed, ("llm",), (2, 8), Cost.REPLY),
    Kind("llm-freeze", llm_frozen, ("llm",), (3, 10), Cost.REPLY),
)
