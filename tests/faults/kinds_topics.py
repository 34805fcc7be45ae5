"""What people do to topics and groups.

They delete records and offsets, add partitions, and write foreign records.
"""

import signal

from confluent_kafka import KafkaException

from schemas.task.envelope import Outgoing
from tests.faults.site import AGENTS, quiet, wait_for
from tests.faults.strike import PATIENCE_S, Kind, Strike

PARTITIONS_MOST = 16
LEAVE_S = 90.0
COMMAND_S = 120.0
BATCH = 1500


def partitions_added(strike: Strike) -> None:
    """Raise the number of partitions with `topics apply`."""
    topics = strike.site.deployment.topics
    before = len(strike.told(lambda: strike.site.bus.positions("nobody", topics.name("tasks"))))
    wanted = min(PARTITIONS_MOST, before + 1)
    strike.begin("topics")
    done = strike.site.direct("topics", "apply", "--partitions", str(wanted))
    strike.evidence |= {
        "code": done.wait(COMMAND_S),
        "partitions": len(
            strike.told(lambda: strike.site.bus.positions("nobody", topics.name("tasks")))
        ),
    }
    strike.bit = strike.evidence["partitions"] > before or before == PARTITIONS_MOST


def records_deleted(strike: Strike) -> None:
    """Delete every record of the main topic, including unread ones."""
    topic = strike.site.deployment.topics.name("tasks")
    group = strike.site.deployment.topics.consumer_group("tasks")
    traffic = strike.site.traffic
    traffic.load(*traffic.batch(BATCH))
    strike.begin("records of the main topic")
    unread = strike.told(lambda: _unread(strike, group, topic))
    strike.site.bus.delete_records(topic)
    lows = {
        one.number: one.low for one in strike.told(lambda: strike.site.bus.positions(group, topic))
    }
    strike.evidence |= {
        "unread": unread,
        "lows": [[number, low] for number, low in sorted(lows.items())],
    }
    strike.bit = unread > 0


def offsets_deleted(strike: Strike) -> None:
    """Let all agents leave, delete the group with its offsets, and let them return."""
    site = strike.site
    group, topic = (
        site.deployment.topics.consumer_group("tasks"),
        site.deployment.topics.name("tasks"),
    )
    strike.begin("offsets of the group", *AGENTS)
    strike.evidence["before"] = strike.told(lambda: _committed(strike, group, topic))
    for seat in AGENTS:
        site.crew.want(seat, wanted=False)
        if (program := site.crew.sitting(seat)) is not None:
            site.crew.leave(seat, program, signal.SIGTERM)
    try:
        gone = wait_for(lambda: quiet(lambda: site.bus.delete_group(group)), LEAVE_S, every_s=0.5)
        strike.evidence["after"] = strike.told(lambda: _committed(strike, group, topic))
        strike.bit = gone and strike.evidence["before"] > strike.evidence["after"]
    finally:
        for seat in AGENTS:
            site.crew.want(seat, wanted=True)


def garbage(strike: Strike) -> None:
    """Write records that are no tasks to the main topic and to the inbox.

    Each must be in the quarantine at the end.
    """
    site, chance = strike.site, strike.chance
    count = chance.randint(5, 30)
    records = [_record(strike, number) for number in range(count)]
    strike.begin("main topic and inbox")
    try:
        site.bus.write(records)
    except (AssertionError, KafkaException) as error:
        strike.evidence["error"] = str(error)[:200]
        return
    strike.evidence["records"] = count
    keys = {record.key for record in records}
    strike.bit = wait_for(
        lambda: quiet(lambda: keys <= _quarantined(strike)), 3 * PATIENCE_S, every_s=1.0
    )


def _record(strike: Strike, number: int) -> Outgoing:
    topics, chance = strike.site.deployment.topics, strike.chance
    values = (
        None,
        b"",
        b"{",
        b"\xff\xfe\x00",
        b'{"id": 7}',
        b"[]",
        chance.randbytes(chance.randint(1, 90_000)),
    )
    headers = chance.choice(
        (
            [],
            [("docllm-task", b"1"), ("docllm-fence", b"0")],
            [("docllm-v", b"9"), ("other", b"\xff")],
        )
    )
    topic = topics.name(chance.choice(("tasks", "inbox")))
    return Outgoing(
        topic, f"garbage-{strike.number}-{number}".encode(), chance.choice(values), headers
    )


def _quarantined(strike: Strike) -> set[bytes]:
    return {
        bytes(row.record_key)
        for row in strike.site.deployment.ledger.quarantined()
        if row.record_key is not None
    }


def _committed(strike: Strike, group: str, topic: str) -> int:
    """Return how many partitions have a committed offset."""
    return sum(one.committed is not None for one in strike.site.bus.positions(group, topic))


def _unread(strike: Strike, group: str, topic: str) -> int:
    places = strike.site.bus.positions(group, topic)
    return sum(one.high - max(one.low, one.committed or 0) for one in places)


KINDS = (
    Kind("partitions-added", partitions_added, ("kafka", "group"), (0, 0), weight=0.4),
    Kind("records-deleted", records_deleted, ("kafka", "topics"), (0, 0), weight=0.6),
    Kind("offsets-deleted", offsets_deleted, (*AGENTS, "kafka", "group"), (0, 0), weight=0.3),
    Kind("garbage", garbage, ("garbage",), (0, 0)),
)
