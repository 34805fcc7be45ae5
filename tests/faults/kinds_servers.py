"""Faults of the servers as processes: kills that keep their files, freezes, a full disk."""

import signal
import time
from collections.abc import Callable

import redis

from tests.faults.site import AGENTS, Site
from tests.faults.strike import Cost, Kind, Strike
from tests.servers import Server, ServerFailedError

LARGE, LARGE_BYTES = 60, 60_000  # tasks, whose texts do not compress


def killed(part: str) -> Callable[[Strike], None]:
    """Return the fault that kills a server, and starts it again on its files."""

    def act(strike: Strike) -> None:
        server, before = _server(strike.site, part), _met(strike.site, part)
        strike.begin(part, *AGENTS)
        server.kill()
        strike.hold(lambda: _met(strike.site, part) > before)
        strike.evidence["failed"] = _met(strike.site, part) - before
        server.start()

    return act


def frozen(part: str) -> Callable[[Strike], None]:
    """Return the fault that freezes a server, then resumes it."""

    def act(strike: Strike) -> None:
        server = _server(strike.site, part)
        strike.begin(part, *AGENTS)
        server.freeze()
        reached = _reached(strike.site, part)
        strike.hold(lambda: _reached(strike.site, part) > reached)
        strike.bit = strike.bit and not server.ready()
        strike.evidence["reached"] = _reached(strike.site, part) - reached
        server.thaw()

    return act


def llm_killed(strike: Strike) -> None:
    """Kill the LLM, and start it again."""
    before = _met(strike.site, "llm")
    strike.begin("llm", *AGENTS)
    strike.site.spawn(strike.site.llm.end).result()
    strike.site.log.note("llm", name=strike.site.llm.name)
    strike.hold(lambda: _met(strike.site, "llm") > before)
    strike.site.start_llm()


def llm_frozen(strike: Strike) -> None:
    """Freeze the LLM, then resume it."""
    strike.begin("llm", *AGENTS)
    strike.site.llm.signal(signal.SIGSTOP)
    reached = _reached(strike.site, "llm")
    strike.hold(lambda: _reached(strike.site, "llm") > reached)
    strike.site.llm.signal(signal.SIGCONT)


def disk_full(strike: Strike) -> None:
    """Leave no space on MariaDB's disk while large tasks are loaded; MariaDB may even die."""
    site = strike.site
    if site.disk is None:
        return
    path, names = site.traffic.batch(
        LARGE, input={"text": strike.chance.randbytes(LARGE_BYTES).hex()}
    )
    strike.begin("mariadb", *AGENTS)
    said = site.mariadb.log.stat().st_size
    site.disk.fill()
    try:
        load = site.tool("load", path)
        strike.hold(lambda: _no_room(site, said))
    finally:
        site.disk.clear()
        died = _revived(site.mariadb)
    strike.evidence["refused"] = _no_room(site, said)
    # A rollback that found no space may kill MariaDB some seconds later.
    while load.running:
        died = _revived(site.mariadb) or died
        time.sleep(1)
    strike.evidence["died"] = died
    load.wait()
    site.traffic.load(path, names)


def _no_room(site: Site, since: int) -> int:
    """Return how often a file of the ledger could not grow."""
    said = site.mariadb.log.read_bytes()[since:]
    return said.count(b"failed with error 28")


def _revived(server: Server) -> bool:
    """Return whether the server had died, and is running again."""
    try:
        _ = server.pid
    except ServerFailedError:
        server.kill()
        server.start()
        return True
    return False


def flushed(strike: Strike) -> None:
    """Delete everything in Redis."""
    with redis.Redis.from_url(strike.site.redis.url) as client:
        strike.begin("redis", *AGENTS)
        strike.hold(client.dbsize)
        strike.evidence["keys"] = client.dbsize()
        client.flushall()
        strike.evidence["left"] = client.dbsize()


def _server(site: Site, part: str) -> Server:
    return {"kafka": site.kafka, "mariadb": site.mariadb, "redis": site.redis}[part]


def _met(site: Site, part: str) -> int:
    """Return how many connections to a server have failed so far."""
    return _sum(site, part, "failed")


def _reached(site: Site, part: str) -> int:
    """Return how many bytes and connections went to and from a server so far.

    A frozen server sends none.
    """
    return _sum(site, part, "carried", "connections")


def _sum(site: Site, part: str, *names: str) -> int:
    told = [site.proxy.ever(door) for door in site.doors_of(part)]
    return sum(one.get(name, 0) for one in told for name in names)


KINDS = (
    Kind("kafka-kill", killed("kafka"), ("kafka",), (2, 10)),
    Kind("kafka-freeze", frozen("kafka"), ("kafka",), (4, 20)),
    Kind("mariadb-kill", killed("mariadb"), ("mariadb",), (2, 15), Cost.LEASE),
    Kind("mariadb-freeze", frozen("mariadb"), ("mariadb",), (4, 20), Cost.LEASE),
    Kind("mariadb-disk-full", disk_full, ("mariadb",), (5, 12), Cost.LEASE, root=True),
    Kind("redis-kill", killed("redis"), ("redis",), (2, 15)),
    Kind("redis-freeze", frozen("redis"), ("redis",), (4, 15)),
    Kind("redis-flushall", flushed, ("redis",), (0, 1)),
    Kind("llm-kill", llm_killed, ("llm",), (2, 8), Cost.REPLY),
    Kind("llm-freeze", llm_frozen, ("llm",), (3, 10), Cost.REPLY),
)
