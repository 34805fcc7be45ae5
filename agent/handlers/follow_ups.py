"""The follow-ups that a handler orders.

Each line is checked immediately. Their tasks are created by the settle that stores the parent's
success; an attempt that fails or is superseded creates none.
"""

import difflib
from collections.abc import Mapping
from functools import partial
from typing import Any

from docllm.agent.handlers.handler_run import Inherited, Tools
from docllm.agent.handlers.json_values import json_bytes
from docllm.agent.ports.outcome import FollowUp
from docllm.schemas.settings.claim_time import over_limit
from docllm.schemas.task.joins import ON_DEAD_CHILD, JoinRole
from docllm.schemas.task.line.parsing import DEFAULT_TENANT, LineError, TaskLine, parse
from docllm.schemas.task.line.schema_cost import is_heavy_line
from docllm.schemas.task.record.lanes import lane_for
from docllm.schemas.task.task_types import BUILT_IN
from docllm.schemas.text.untrusted import contained, describe_error, sealed
from docllm.schemas.text.wording import one_line

MAX_DEPTH = 10
MAX_FOLLOW_UPS = 1000
MAX_BYTES = 4 << 20  # all lines together, because one transaction writes them
_SHOWN_CHARS = 200


class FollowUpError(ValueError):
    """A follow-up cannot be ordered; the text names its id, the field at fault, and the fix.

    Unless the handler catches it, the attempt has failed and counts.
    """


class FollowUps:
    """The follow-ups of one attempt."""

    def __init__(self, *, parent: TaskLine, inherited: Inherited, tools: Tools) -> None:
        self._parent = parent
        self._inherited = inherited
        self._tools = tools
        self._ordered: dict[str, FollowUp] = {}
        self._joins: dict[str, FollowUp] = {}
        self._bytes = 0

    @property
    def ordered(self) -> tuple[FollowUp, ...]:
        """The follow-ups in the order in which they were ordered, the joins last."""
        return (*self._ordered.values(), *self._joins.values())

    def clear(self) -> None:
        """Forget what was ordered, because the handler begins again."""
        self._ordered.clear()
        self._joins.clear()
        self._bytes = 0

    async def add(
        self, line: Mapping[str, Any], after: str | None = None, on_dead_child: str = "wait"
    ) -> None:
        """Order a follow-up; `after` "children" makes it a join.

        Ordering the same line twice has no effect. Raises FollowUpError.
        """
        if not isinstance(line, Mapping):
            raise _refused("a follow-up", 'is a dict, for example {"id": "a/1", "prompt": "..."}')
        name = _shown(line)
        if self._inherited.depth >= MAX_DEPTH:
            raise _refused(
                name,
                f"would have {self._inherited.depth + 1} ancestors, and {MAX_DEPTH} are allowed; "
                "let the handler end the chain earlier",
            )
        role = _join_role(name, after, on_dead_child)
        value = self._written(line, name)
        try:
            task = await self._parsed(value)
        except LineError as error:
            where = f"its {error.field} " if error.field else "it "
            raise _refused(name, f"is no task: {where}{error.error}; {error.fix}") from None
        except TimeoutError:
            fix = "make it smaller, or simplify its patterns"
            raise _refused(name, f"is no task: its schema takes too long to check; {fix}") from None
        self._check(task, value, name)
        if role.is_join and task.not_before is not None:
            raise _refused(name, "runs after other tasks, so it has no not_before; leave it out")
        self._keep(self._follow_up(task, line, value, role), name)

    def _written(self, line: Mapping[str, Any], name: str) -> bytes:
        """Return the line as it is stored, with what it takes from its parent."""
        is_openai = "custom_id" in line or "body" in line
        taken: dict[str, Any] = {}
        if not is_openai and self._inherited.tenant != DEFAULT_TENANT:
            taken["tenant"] = self._inherited.tenant
        if (allowed := self._parent.routes_allowed) is not None:
            taken["routes_allowed"] = list(allowed)
        try:
            with contained():
                return json_bytes({**taken, **line}, "line")
        except Exception as error:  # noqa: BLE001 - whatever a handler puts into a line
            raise _refused(
                name, f"cannot be written as JSON: {describe_error(error)}; use JSON values alone"
            ) from None

    async def _parsed(self, value: bytes) -> TaskLine:
        if sealed(partial(is_heavy_line, value)):
            return await self._tools.apart(partial(sealed, partial(parse, value)))
        return parse(value)

    def _check(self, task: TaskLine, value: bytes, name: str) -> None:
        types = self._tools.types
        if task.type not in BUILT_IN and task.type not in types:
            nearest = difflib.get_close_matches(task.type, sorted(BUILT_IN | types.keys()), 1)
            guess = f"did you mean {nearest[0]}? " if nearest else ""
            raise _refused(
                name,
                f"has the unknown type {task.type!r}; {guess}"
                f"a type of your own needs [types.{task.type}] in the settings",
            )
        asked_s = task.time_limit_s
        if asked_s is not None and (
            fault := over_limit(task.type, asked_s, self._tools.limit_s(task.type))
        ):
            raise _refused(name, f"is no task: its time_limit_s {'; '.join(fault)}")
        if task.key == self._parent.key:
            raise _refused(name, "has the id of its parent; give it an id of its own")
        if refusal := self._tools.route_refusal(value, self._inherited.routes_allowed):
            raise _refused(name, f"could not run: {refusal}; name a route that it may take")

    def _follow_up(
        self, task: TaskLine, line: Mapping[str, Any], value: bytes, role: JoinRole
    ) -> FollowUp:
        return FollowUp(
            key=task.key,
            value=value,
            type=task.type,
            tenant=self._inherited.tenant if task.format == "openai" else task.tenant,
            max_attempts=task.max_attempts or self._tools.max_attempts_of(task.type),
            deadline=task.deadline,
            not_before=task.not_before,
            lane=lane_for(task.priority) if "priority" in line else self._inherited.lane,
            join_role=role,
        )

    def _keep(self, follow_up: FollowUp, name: str) -> None:
        earlier = self._ordered.get(follow_up.key) or self._joins.get(follow_up.key)
        if earlier is not None:
            if earlier != follow_up:
                raise _refused(
                    name,
                    "was ordered already with other content; give each follow-up its own id",
                )
            return
        if len(self._ordered) + len(self._joins) >= MAX_FOLLOW_UPS:
            raise _refused(
                name,
                f"is one more than the {MAX_FOLLOW_UPS} that a task may order; "
                "let a follow-up order the rest",
            )
        if self._bytes + len(follow_up.value) > MAX_BYTES:
            raise _refused(
                name,
                f"makes the lines of all follow-ups longer than {MAX_BYTES} bytes; "
                "let a follow-up order the rest, or name large inputs by input.uri",
            )
        of_kind = self._joins if follow_up.join_role.is_join else self._ordered
        of_kind[follow_up.key] = follow_up
        self._bytes += len(follow_up.value)


def _join_role(name: str, after: str | None, on_dead_child: str) -> JoinRole:
    role = ON_DEAD_CHILD.get(on_dead_child)
    if role is None:
        words = ", ".join(ON_DEAD_CHILD)
        raise _refused(name, f"has on_dead_child={on_dead_child!r}; write one of: {words}")
    if after not in {None, "children"}:
        raise _refused(name, f'has after={after!r}; write after="children", or leave it out')
    return JoinRole.NONE if after is None else role


def _shown(line: Mapping[str, Any]) -> str:
    """Return how to name a line to a person."""
    key = line.get("id", line.get("custom_id", line.get("key")))
    return f"the follow-up {key[:_SHOWN_CHARS]!r}" if isinstance(key, str) else "the follow-up"


def _refused(name: str, problem: str) -> FollowUpError:
    return FollowUpError(one_line(f"{name} {problem}"))
