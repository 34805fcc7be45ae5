"""The order in which a person is told why work waits: first what needs a person most."""

from enum import IntEnum

from docllm.schemas.codes import Code


class Urgency(IntEnum):
    """Kinds of reasons, the worst first: reasons that stop the most work and need a person."""

    NO_AGENT = 0
    ROUTE_PARKED = 1
    TOPIC_UNKNOWN = 2
    TOPIC_CHANGED = 3
    GUARD_RAISED = 4
    TYPE_UNKNOWN = 5
    ROUTE_REFUSED = 6
    SETTINGS_REFUSED = 7
    HOOKS_GIVEN_UP = 8
    RELEASE_WORSE = 9
    LOOP_BLOCKED = 10
    AGENT_LOST = 11  # it still holds tasks
    ROUTE_STOPPED = 12
    CALLS_HANG = 13
    SUSPECT_RUNS = 14
    AGENT_SILENT = 15
    ROUTE_PAUSED = 16
    ROUTE_LIMITED = 17
    TYPE_ASLEEP = 18
    LOCK_HELD = 19
    ROUTES_LEFT_OUT = 20
    OTHER = 21  # what an agent of another version says

    @property
    def code(self) -> str:
        """The code of this kind; empty if it has none, because another version told it."""
        return "" if self is Urgency.OTHER else Code[self.name]

    @property
    def needs_person(self) -> bool:
        """Whether somebody must act; the other kinds usually end by themselves."""
        return self <= Urgency.LOOP_BLOCKED

    @property
    def is_trouble(self) -> bool:
        """Whether something is wrong. A limit that is used up is no trouble: its tasks go on."""
        return self is not Urgency.ROUTE_LIMITED


_OF_CODES: dict[str, Urgency] = {kind.code: kind for kind in Urgency}


def urgency_of(code: str) -> Urgency:
    """Return the urgency of a reason that an agent reports."""
    return _OF_CODES.get(code, Urgency.OTHER)
