"""How much one agent reads ahead, keeps in memory, and does in one step."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightLimits:
    """The limits of one agent. A simulation makes them small, so that its runs reach them.

    Partitions:
        span: offsets from the watermark to the newest record at which a partition is paused. A
            crash repeats these records.
        resume_span: offsets below which a paused partition is read again.
        finished_share: share of finished records in a wide span from which on the task that blocks
            the span is relieved.
        stuck_share: the same for a blocking task that waits for long.

    Deliveries in memory:
        bodies_bytes: bytes of bodies and rejected records at which all topics are paused.
        ready: deliveries that wait for a question or a claim at which a lane is paused, at least
            two for each slot. Half of them resume it.
        ready_normal: the same for the normal lane. It exceeds 10,000, the number after which a
            tenant's tasks go to the bulk lane, so that other tenants' tasks are read.
        shelved: deliveries of shelved routes at which the lanes are paused, and unfinished
            deliveries at which the topic of a tier is paused.
        rejected: rejected records above which all topics are paused.
        kept_answers, kept_answers_bytes: most answers that are kept for their tasks' next claim,
            because their settle was superseded or they could not be written.

    Closed routes:
        shelve_after_s: time after which a full agent shelves a closed route.
        move_after_s: time after which the deliveries of a closed route may go to a tier.
        crowd: deliveries of a closed route above which they go to a tier if another route is open.

    Claims before a slot is free:
        ahead_s: as many tasks are claimed ahead as usually end within this time, at most the slots.
        ahead_most_s: time after which a task that still waits for its slot is given back. Claims
            last longer by it, so that the time of an attempt counts from its start.

    One step:
        page: most deliveries in one question or one claim; at least 2, since half of a question is
            for due deliveries of the delay queue.
        move_page: most deliveries of a closed route that go to a tier at each tick.
        quarantine_page, quarantine_page_bytes: most rejected records in one transaction.
        settle_page, sqlite_settle_page, settle_page_bytes: most outcomes in one transaction. Bodies
            travel as hexadecimal digits, so 2 MiB of them make a statement of about 4 MiB.

    Inbox:
        inbox_page, inbox_page_bytes: most records in one transaction.
        inbox_records, inbox_bytes: waiting records above which the inbox is paused.
    """

    span: int = 50_000
    resume_span: int = 45_000
    finished_share: float = 0.98
    stuck_share: float = 0.1

    bodies_bytes: int = 128 << 20
    ready: int = 2000
    ready_normal: int = 12_000
    shelved: int = 50_000
    rejected: int = 500
    kept_answers: int = 1000
    kept_answers_bytes: int = 64 << 20

    shelve_after_s: float = 5.0
    move_after_s: float = 60.0
    crowd: int = 25_000

    ahead_s: float = 0.5
    ahead_most_s: float = 10.0

    page: int = 500
    move_page: int = 125
    quarantine_page: int = 100
    quarantine_page_bytes: int = 8 << 20
    settle_page: int = 500
    sqlite_settle_page: int = 200
    settle_page_bytes: int = 2 << 20

    inbox_page: int = 200
    inbox_page_bytes: int = 4 << 20
    inbox_records: int = 2000
    inbox_bytes: int = 64 << 20
