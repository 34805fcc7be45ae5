"""Writes each result outside the ledger once, before the settle that stores its pointer.

An object's name contains its task and fence, and no object is overwritten. A killed or superseded
attempt may have left an object with that name. If its bytes are equal, it is used; otherwise the
new object's name also gets the claim's unique number.

While a store fails, the answers that were paid for are kept and tried again. No new call is made
for tasks that would write there, until an answer was written or none is left to be tried.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from docllm.agent.ports import Clock, Row
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Snooze, Spent, Succeeded
from docllm.schemas.codes import Code
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.write_once import WriteOnceStore, put_once, safe_name
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.outage import LogLimit
from docllm.schemas.task.allowed_uris import allowed
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import is_exact
from docllm.schemas.task.result.codec import POINTER
from docllm.schemas.task.result.output_pointer import Output, output_of
from docllm.schemas.text.wording import one_line

log = logging.getLogger(__name__)

RETRY_WRITE_S = 10.0  # delay before a failed write is retried
TRY_S = 20.0  # the longest time of one try
WAITS_S = (1.0, 2.0)  # between the tries of one attempt
# After a failed write, no new call begins for this long; a kept answer, if any, is retried
# meanwhile.
QUIET_S = RETRY_WRITE_S + 2 * TRY_S
_MAX_NAMES = 20
# These errors are permanent: another try would fail in the same way.
_FINAL = frozenset({ObjectFault.WRONG_NAME, ObjectFault.TOO_LARGE})


class Outputs:
    """Writes the answers of one agent below the prefixes `allow`."""

    def __init__(self, *, store: WriteOnceStore, allow: Sequence[str], clock: Clock) -> None:
        self._store = store
        self._allow = tuple(allow)
        self._clock = clock
        # By folder: until when no new call is made for it, and the failure of its last write.
        self._failing: dict[str, tuple[float, Failure]] = {}
        self._log_limit = LogLimit(clock)

    def refusal(self, output_uri: str) -> Outcome | None:
        """Return the outcome to settle if an output cannot be written now; None if it can.

        Called before each LLM call, so that no answer is paid for in vain.
        """
        folder = _folder(output_uri)
        if not allowed(folder, self._allow):
            text = (
                f"{folder} is not below an allowed prefix; set DOCLLM_DOCUMENT_ALLOW, or "
                "[documents] allow, of the agents to the prefix below which they may write"
            )
            return Dead(Failure(ErrorClass.OUTPUT_REFUSED, one_line(text)), Spent())
        until_s, failure = self._failing.get(folder, (0.0, None))
        now_s = self._clock.now_s()
        if failure is None:
            return None
        if until_s <= now_s:  # no answer is left to be tried, so one new call may be made
            self._failing[folder] = now_s + QUIET_S, failure
            return None
        return Snooze(failure, Spent(), min(RETRY_WRITE_S, until_s - now_s))

    async def write(self, answer: Succeeded, row: Row, *, owner: int, until_s: float) -> Outcome:
        """Write the answer of a task that `owner` claimed; return how the attempt ends.

        If it is written, it ends with the answer's pointer.
        An answer for one object keeps its `output_uri`, to which the settle orders a copy. No
        second try begins that could last beyond `until_s`.
        """
        folder = _folder(answer.output_uri)
        output = output_of(
            key=row.key_text, batch=row.batch, codec=answer.codec, stored=answer.body
        )
        for wait_s in (*WAITS_S, math.inf):
            try:
                uri = await self._put(folder, names(row, owner), output)
            except ObjectError as error:
                if error.fault in _FINAL:
                    failure = Failure(ErrorClass.OUTPUT_REFUSED, one_line(str(error)))
                    return Dead(failure, answer.spent)
                self._note_failed(folder, error)
            else:
                self._failing.pop(folder, None)
                crash.reach("output.put")
                pointer = output.pointer(uri)
                exact = answer.output_uri if is_exact(answer.output_uri) else ""
                return replace(answer, body=pointer.stored(), codec=POINTER, output_uri=exact)
            if self._clock.now_s() + wait_s + TRY_S > until_s:
                break
            await self._clock.sleep(wait_s)
        _, failure = self._failing[folder]
        kept = replace(answer, spent=booked(answer.spent))
        return Snooze(failure, answer.spent, RETRY_WRITE_S, answer=kept)

    async def _put(self, folder: str, free_names: Iterable[str], output: Output) -> str:
        """Write an object under the first name that is free or has it already; return its URI."""
        for name in free_names:
            uri = f"{folder}{name}"
            try:
                async with asyncio.timeout(TRY_S):
                    if await self._is_there(uri, output.content):
                        return uri
            except TimeoutError:
                text = f"{uri} cannot be written: the store did not answer within {TRY_S:g} s"
                raise ObjectError(ObjectFault.OUTAGE, text) from None
        raise ObjectError(ObjectFault.EXISTS, f"{folder}{name} exists already with other content")

    async def _is_there(self, uri: str, content: bytes) -> bool:
        """Write an object; return False if another one has its name."""
        return await put_once(self._store, uri, content)

    def _note_failed(self, folder: str, error: ObjectError) -> None:
        now_s = self._clock.now_s()
        failure = Failure(ErrorClass.OUTPUT_UNWRITABLE, one_line(str(error)))
        self._failing = {name: of for name, of in self._failing.items() if of[0] > now_s}
        self._failing[folder] = now_s + QUIET_S, failure
        if self._log_limit.permits():
            log.warning(
                "a result cannot be written (%s); it is kept and written again, and no new task "
                "with this output is begun until then",
                failure.text,
                extra={"code": Code.OUTPUT_UNWRITABLE},
            )


def _folder(output_uri: str) -> str:
    """Return the folder in which the object of an attempt is written."""
    return f"{output_uri.rpartition('/')[0]}/"


def names(row: Row, owner: int) -> Iterator[str]:
    """Yield the names for an object, the best one first.

    Its task and fence are in each; the task's id is there for people, as far as it is safe.
    """
    name = f"{safe_name(row.key_text)}-{row.task_id}-{row.fence}"
    yield f"{name}.json"
    yield f"{name}-{owner}.json"
    for number in range(2, _MAX_NAMES):
        yield f"{name}-{owner}-{number}.json"


def booked(spent: Spent) -> Spent:
    """Return these costs with all amounts zero, because an earlier end has booked them."""
    return Spent(model=spent.model, call_id=spent.call_id)
