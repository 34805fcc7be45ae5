"""What people do to topics and groups.

They delete records and offsets, add partitions, and write foreign records.
"""

import signal

from confluent_kafka import KafkaException

from docllm.schemas.task.record.envelope import Outgoing
from tests.faults.fault import PATIENCE_S, Fault, Kind
from tests.faults.site import AGENTS, quiet, wait_for

MAX_PARTITIONS = 16
LEAVE_S = 90.0
COMMAND_S = 120.0
BATCH = 1500


def partitions_added(fault: Fault) -> None:
    """Raise the number of partitions with `topics apply`."""
    topics = fault.site.deployment.topics
    before = len(fault.told(lambda: fault.site.bus.positions("nobody", topics.name("tasks"))))
    wanted = min(MAX_PARTITIONS, before + 1)
    fault.begin("topics")
    done = fault.site.direct("topics", "apply", "--partitions", str(wanted))
    fault.evidence |= {
        "code": done.wait(COMMAND_S),
        "partitions": len(
            fault.told(lambda: fault.site.bus.positions("nobody", topics.name("tasks")))
        ),
    }
    fault.bit = fault.evidence["partitions"] > before or before == MAX_PARTITIONS


def records_deleted(fault: Fault) -> None:
    """Delete every record of the main topic, including unread ones."""
    topic = fault.site.deployment.topics.name("tasks")
    group = fault.site.deployment.topics.consumer_group("tasks")
    traffic = fault.site.traffic
    traffic.load(*traffic.batch(BATCH))
    fault.begin("records of the main topic")
    unread = fault.told(lambda: _unread(fault, group, topic))
    fault.site.bus.delete_records(topic)
    lows = {
        position.number: position.low
        for position in fault.told(lambda: fault.site.bus.positions(group, topic))
    }
    fault.evidence |= {
        "unread": unread,
        "lows": [[number, low] for number, low in sorted(lows.items())],
    }
    fault.bit = unread > 0


def offsets_deleted(fault: Fault) -> None:
    """Let all agents leave, delete the group with its offsets, and let them return."""
    site = fault.site
    group, topic = (
        site.deployment.topics.consumer_group("tasks"),
        site.deployment.topics.name("tasks"),
    )
    fault.begin("offsets of the group", *AGENTS)
    fault.evidence["before"] = fault.told(lambda: _committed(fault, group, topic))
    for seat in AGENTS:
        site.seats.want(seat, wanted=False)
        if (program := site.seats.program_in(seat)) is not None:
            site.seats.end_program(seat, program, signal.SIGTERM)
    try:
        gone = wait_for(lambda: quiet(lambda: site.bus.delete_group(group)), LEAVE_S, every_s=0.5)
        fault.evidence["after"] = fault.told(lambda: _committed(fault, group, topic))
        fault.bit = gone and fault.evidence["before"] > fault.evidence["after"]
    finally:
        for seat in AGENTS:
            site.seats.want(seat, wanted=True)


def garbage(fault: Fault) -> None:
    """Write records that are no tasks to the main topic and to the inbox.

    Each must be in the quarantine at the end.
    """
    site, chance = fault.site, fault.chance
    count = chance.randint(5, 30)
    records = [_record(fault, number) for number in range(count)]
    fault.begin("main topic and inbox")
    try:
        site.bus.write(records)
    except (AssertionError, KafkaException) as error:
        fault.evidence["error"] = str(error)[:200]
        return
    fault.evidence["records"] = count
    keys = {record.key for record in records}
    fault.bit = wait_for(
        lambda: quiet(lambda: keys <= _quarantined(fault)), 3 * PATIENCE_S, every_s=1.0
    )


def _record(fault: Fault, number: int) -> Outgoing:
    topics, chance = fault.site.deployment.topics, fault.chance
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
        topic, f"garbage-{fault.number}-{number}".encode(), chance.choice(values), headers
    )


def _quarantined(fault: Fault) -> set[bytes]:
    return {
        bytes(row.record_key)
        for row in fault.site.deployment.ledger.quarantined()
        if row.record_key is not None
    }


def _committed(fault: Fault, group: str, topic: str) -> int:
    """Return how many partitions have a committed offset."""
    return sum(
        position.committed is not None for position in fault.site.bus.positions(group, topic)
    )


def _unread(fault: Fault, group: str, topic: str) -> int:
    places = fault.site.bus.positions(group, topic)
    return sum(place.high - max(place.low, place.committed or 0) for place in places)


KINDS = (
    Kind("partitions-added", partitions_added, ("kafka", "group"), (0, 0), weight=0.4),
    Kind("records-deleted", records_deleted, ("kafka", "topics"), (0, 0), weight=0.6),
    Kind("offsets-deleted", offsets_deleted, (*AGENTS, "kafka", "group"), (0, 0), weight=0.3),
    Kind("garbage", garbage, ("garbage",), (0, 0)),
)
