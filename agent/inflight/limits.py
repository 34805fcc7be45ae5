"""How much one agent reads ahead, keeps in memory, and does in one step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one agent. A simulation makes them small, so that its runs reach them.

    Partitions:
        span: offsets from the watermark to the newest record; a crash repeats these records. At so
            many, the partition is paused.
        resume_span: a partition with a wide span is read again below so many offsets.
        finished_share: the share of finished records at which a wide span is relieved.
        stuck_share: the same if the task that blocks the span waits for long. Such a share shows
            that other tasks came and went.

    Deliveries in memory:
        bodies_bytes: bytes of bodies and rejected records; at so many, all topics are paused.
        ready: deliveries that wait for a question or a claim; at so many, the main topic is
            paused until half of them are gone. An agent with many slots waits for two deliveries
            for each slot instead.
        shelved: records of a topic that wait without bodies; at so many, this topic is paused.
        rejected: rejected records; with more, all topics are paused.
        paid_answers: answers of fenced settlements that wait for their tasks' next claim.

    Closed routes:
        shelve_after_s: a route is shelved when it has been closed so long and the agent is full.
        move_after_s: its deliveries may go to a tier when it has been closed so long.
        crowd: deliveries of a closed route; with more, they go to a tier if another route is open.

    One step:
        page: deliveries in one question or one claim; at least 2, since half of a question is for
            due deliveries of the delay queue.
        move_page: deliveries of a closed route that go to a tier at each tick.
        quarantine_page, quarantine_page_bytes: rejected records in one transaction.
        group, sqlite_group, group_bytes: outcomes in one transaction. Bodies travel as hexadecimal
            digits, so 2 MiB of them make a statement of about 4 MiB.

    Inbox:
        inbox_page, inbox_page_bytes: records in one transaction.
        inbox_records, inbox_bytes: records that wait; with more, the inbox is paused.
    """

    span: int = 50_000
    resume_span: int = 45_000
    finished_share: float = 0.98
    stuck_share: float = 0.1

    bodies_bytes: int = 128 << 20
    ready: int = 1000
    shelved: int = 50_000
    rejected: int = 500
    paid_answers: int = 1000

    shelve_after_s: float = 5.0
    move_after_s: float = 60.0
    crowd: int = 25_000

    page: int = 500
    move_page: int = 125
    quarantine_page: int = 100
    quarantine_page_bytes: int = 8 << 20
    group: int = 500
    sqlite_group: int = 200
    group_bytes: int = 2 << 20

    inbox_page: int = 200
    inbox_page_bytes: int = 4 << 20
    inbox_records: int = 2000
    inbox_bytes: int = 64 << 20
