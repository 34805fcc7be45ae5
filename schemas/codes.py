"""The stable codes of problems that need a person.

Pure. A code names one problem in the log, in `status` and in alerts. Its section in
docs/how-to/runbook.md says what to do. Codes are stored and published, so none is ever renamed.
"""

from enum import StrEnum


class Code(StrEnum):
    """The code of a problem that needs a person; the value is also its anchor in the runbook."""

    # Why work waits, as `status` shows it (producer/text/urgency.py has the order).
    NO_AGENT = "no_agent"
    ROUTE_PARKED = "route_parked"
    TOPIC_UNKNOWN = "topic_unknown"
    TOPIC_CHANGED = "topic_changed"  # a setting by which Kafka may delete waiting work
    GUARD_RAISED = "guard_raised"
    TYPE_UNKNOWN = "type_unknown"
    ROUTE_REFUSED = "route_refused"  # tasks may take no route of the agent
    SETTINGS_REFUSED = "settings_refused"  # changed settings are not used
    HOOKS_GIVEN_UP = "hooks_given_up"
    RELEASE_WORSE = "release_worse"
    LOOP_BLOCKED = "loop_blocked"
    AGENT_LOST = "agent_lost"
    ROUTE_STOPPED = "route_stopped"
    CALLS_HANG = "calls_hang"
    SUSPECT_RUNS = "suspect_runs"
    AGENT_SILENT = "agent_silent"
    ROUTE_PAUSED = "route_paused"
    ROUTE_LIMITED = "route_limited"
    TYPE_ASLEEP = "type_asleep"  # its hours have not begun
    LOCK_HELD = "lock_held"  # tasks wait for a lock that another task holds
    ROUTES_LEFT_OUT = "routes_left_out"  # further routes wait that are not listed

    # Problems that alerts and the log report.
    STALLED = "stalled"
    ORDERS_STUCK = "orders_stuck"
    LEASE_LOST = "lease_lost"
    TASKS_DEAD = "tasks_dead"
    INBOX_UNREAD = "inbox_unread"
    COST_WASTED = "cost_wasted"
    RECORD_QUARANTINED = "record_quarantined"
    VERSIONS_MIXED = "versions_mixed"
    EXPORTER_STALE = "exporter_stale"
    EXPORTER_DOWN = "exporter_down"
    RETRY_LATE = "retry_late"
    COST_HIGH = "cost_high"
    ARCHIVE_LATE = "archive_late"

    # Problems that only the log reports: servers and topics.
    SERVER_AWAY = "server_away"
    DATABASE_SLOW = "database_slow"
    LEDGER_BEHIND = "ledger_behind"  # a record names a task that the ledger has lost
    ANSWERS_DROPPED = "answers_dropped"  # paid answers that could not be stored
    RECORDS_UNREAD = "records_unread"
    RECORD_UNDELIVERABLE = "record_undeliverable"
    LETTERS_RETURNED = "letters_returned"
    SPANS_DROPPED = "spans_dropped"

    # Agents and their machines.
    AGENT_ENDED = "agent_ended"
    CLOCK_SET_BACK = "clock_set_back"
    DUTY_FAILS = "duty_fails"
    FILES_TOO_FEW = "files_too_few"
    FOLDER_OPEN = "folder_open"
    KEY_IN_CLEAR = "key_in_clear"

    # Tasks, documents and results.
    ATTEMPTS_FAIL = "attempts_fail"
    DOCUMENT_REFUSED = "document_refused"
    HANDLER_FAILS = "handler_fails"
    HANDLER_GOES_ON = "handler_goes_on"
    INPUT_CUT = "input_cut"  # a server cuts prompts and answers a part of them
    LOAD_UNFINISHED = "load_unfinished"
    OUTCOME_UNWRITABLE = "outcome_unwritable"
    OUTPUT_UNWRITABLE = "output_unwritable"
    RESULT_UNREADABLE = "result_unreadable"
    TEXTS_NOT_KEPT = "texts_not_kept"

    # The end of a program, by its exit code (schemas/errors.py).
    INPUT_BAD = "input_bad"
    SETTINGS_WRONG = "settings_wrong"
    SERVER_DENIES = "server_denies"
    STATE_UNSAFE = "state_unsafe"
    MEMORY_FULL = "memory_full"
    INTERNAL_ERROR = "internal_error"  # a bug of docllm
