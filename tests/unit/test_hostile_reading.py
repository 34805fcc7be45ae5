"""Whatever a library does over one record, line, schema, reply or document, only it fails."""

import asyncio
import io
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.agent.documents.conversion import by_content
from docllm.agent.handlers import ChildExecutor, runner
from docllm.agent.handlers.documents import DocumentError, Expected
from docllm.agent.inflight import decoder
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.judge import Effect, judge
from docllm.agent.judge import completion as completions
from docllm.agent.llm.client import ChatClient
from docllm.agent.ports import Call, CallFailed, Partition, Record, RejectedRecord, Reply
from docllm.agent.ports.outcome import Dead, Retry, Succeeded
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.routes import names as naming
from docllm.agent.routes.evidence import by_answer
from docllm.agent.routes.names import RouteNames
from docllm.producer.input import lines
from docllm.producer.input.lines import InvalidLine, ValidLine, read_lines
from docllm.producer.ledger import quarantine
from docllm.producer.ledger.quarantine import headers_of
from docllm.producer.ledger.results import export as exports
from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    Result,
    docllm_line,
    openai_line,
)
from docllm.producer.loading import foreign_records
from docllm.schemas.errors import DocllmError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import Config
from docllm.schemas.task.answer_schema import validator
from docllm.schemas.task.line.parsing import LineError, TaskLine, parse
from docllm.schemas.task.record.envelope import Publication, encode
from docllm.schemas.task.result import fitness
from docllm.schemas.task.states import Status
from tests.support.documents import file_documents
from tests.support.handlers import CountingExecutor, failure_of, handlers_harness
from tests.support.hostile import FAILURES, PanicError, failing, names
from tests.support.intake import new_intake
from tests.support.replies import FACTS, completion

INBOX = Partition("g.inbox", "id", 0, 1)
LEDGER = "0" * 32
# Makes the validator of jsonschema-rs 0.60 panic. The spelling of its second $id evades the check
# for doubled ids.
PANIC = {"anyOf": [{"$id": "b", "$ref": "#a", "$defs": {"r": {"$anchor": "a"}}}, {"$id": "./b"}]}

every_failure = pytest.mark.parametrize("error", FAILURES, ids=names)


@pytest.fixture(autouse=True)
def nobody_presses_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a KeyboardInterrupt as a library's, as in an agent, which handles its own signals."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.SIG_IGN)


def line(key: str, **fields: Any) -> bytes:
    return orjson.dumps({"id": key, "prompt": "Sum."} | fields)


def unread(value: bytes, offset: int = 0) -> Record:
    return Record(partition=INBOX, offset=offset, timestamp_ms=0, key=None, value=value, headers=[])


def read_inbox(values: list[bytes], memory: MemoryWatch | None = None) -> list[object]:
    inbox = new_intake(memory=memory)

    async def run() -> list[object]:
        return [await inbox._read(unread(value, offset)) for offset, value in enumerate(values)]

    return asyncio.run(run())


# ---- lines of a file


@every_failure
def test_load_names_the_line_that_cannot_be_read_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """An unreadable line is reported; the lines before and after it are loaded."""
    monkeypatch.setattr(lines, "parse", failing(error, parse, on=lambda value: b'"b"' in value))

    first, bad, last = read_lines("-", stdin=io.BytesIO(b"\n".join(map(line, "abc"))))

    assert (type(first), type(last)) == (ValidLine, ValidLine)
    assert isinstance(bad, InvalidLine)
    assert (bad.line, bad.text) == (2, line("b").decode())
    assert names(error) in str(bad)
    str(bad).encode()


def test_load_names_a_line_that_makes_the_validator_panic() -> None:
    """A line that makes the validator panic is reported.

    It used to end `load` with a traceback and the exit code of a finished load.
    """
    good, bad, last = read_lines(
        "-", stdin=io.BytesIO(b"\n".join([line("a"), line("b", schema=PANIC), line("c")]))
    )

    assert (type(good), type(last)) == (ValidLine, ValidLine)
    assert isinstance(bad, InvalidLine)
    assert str(bad).startswith(
        "line 2: schema is not a valid JSON Schema: the validator fails on it (PanicException"
    )


def test_a_doubled_id_is_refused_with_its_name() -> None:
    """A doubled id in a schema is refused with its name, so that its author can find it."""
    with pytest.raises(
        LineError, match=r"has the \$id x:y twice; give each subschema a short \$id of its own"
    ):
        parse(line("a", schema={"$defs": {"a": {"$id": "x:y"}, "b": {"items": {"$id": "x:y"}}}}))


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$id": "http://a/",
            "$defs": {
                "a": {"$id": "1/", "$defs": {"c": {"$id": "c"}}},
                "b": {"$id": "2/", "$defs": {"c": {"$id": "c"}}},
            },
        },
        {"enum": [{"$id": "x:y"}, {"$id": "x:y", "a": 1}], "examples": [{"$id": "x:y"}]},
        {
            "properties": {"$id": {"type": "string"}},
            "$defs": {"a": {"properties": {"$id": {"type": "string"}}}},
        },
    ],
    ids=["relative to others", "data", "a property"],
)
def test_an_id_that_only_looks_doubled_is_taken(schema: dict[str, Any]) -> None:
    """Ids that only look doubled are accepted: bundled schemas use relative names."""
    assert parse(line("a", schema=schema)).schema == schema


@every_failure
def test_a_schema_on_which_the_validator_fails_is_a_fault_of_its_line(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A schema on which the validator fails is its line's fault.

    A MemoryError says nothing about the schema, but where lines are read it counts as the line's.
    """
    monkeypatch.setattr(jsonschema_rs, "validator_for", failing(error))

    (bad,) = read_lines("-", stdin=io.BytesIO(line("b", schema={"title": "never compiled before"})))

    assert isinstance(bad, InvalidLine)
    assert names(error) in str(bad)


# ---- records of the inbox


@every_failure
def test_the_intake_quarantines_a_record_whose_reading_fails(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The intake quarantines a record whose reading fails.

    Otherwise the agent would end again at each start, and so would the next agent.
    """
    monkeypatch.setattr(
        foreign_records, "parse", failing(error, parse, on=lambda value: b'"b"' in value)
    )

    first, rejected, last = read_inbox([line("a"), line("b"), line("c")])

    assert isinstance(first, tuple)
    assert isinstance(last, tuple)
    assert isinstance(rejected, str)
    assert names(error) in rejected
    rejected.encode()


def test_memory_that_runs_out_twice_over_inbox_records_drains_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each record fails alone; the watch that drains the agent learns of both."""
    monkeypatch.setattr(
        foreign_records, "parse", failing(MemoryError(), parse, on=lambda _value: True)
    )
    memory = MemoryWatch(SystemClock())

    read = read_inbox([line("a"), line("b")], memory)

    assert [type(record) for record in read] == [str, str]
    with pytest.raises(DocllmError, match="memory ran out twice"):
        asyncio.run(memory.run())


def test_the_intake_quarantines_a_record_that_makes_the_validator_panic() -> None:
    """The intake quarantines a record that makes the validator panic.

    One record of 114 bytes used to stop every agent of a group for good.
    """
    first, rejected, last = read_inbox([line("a"), line("b", schema=PANIC), line("c")])

    assert isinstance(first, tuple)
    assert isinstance(last, tuple)
    assert isinstance(rejected, str)
    assert "PanicException" in rejected


@given(failing_lines=st.dictionaries(st.integers(0, 9), st.sampled_from(FAILURES)))
def test_any_lines_may_fail_in_any_way(failing_lines: dict[int, BaseException]) -> None:
    """Of any mix of lines, exactly the failing ones are quarantined."""

    def parse_or_fail(value: bytes) -> Any:
        task = parse(value)
        if (error := failing_lines.get(int(task.key))) is not None:
            raise error
        return task

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign_records, "parse", parse_or_fail)
        read = read_inbox([line(str(number)) for number in range(10)])

    assert {
        number for number, record in enumerate(read) if isinstance(record, str)
    } == failing_lines.keys()


SLOW = rb'{"id":"s","prompt":"x","schema":{"pattern":"\\pL{300}"}}'


def test_a_line_that_takes_long_to_read_is_read_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that takes long to read is read in the child.

    Six hundred lines of 56 bytes used to stop an agent for a minute.
    """
    here: list[bytes] = []

    def parse_here(value: bytes) -> TaskLine:
        here.append(value)
        return parse(value)

    monkeypatch.setattr(foreign_records, "parse", parse_here)
    inbox = new_intake()
    inbox.apart = apart = CountingExecutor()

    async def run() -> list[object]:
        return [await inbox._read(unread(value)) for value in (line("a"), SLOW, line("b"))]

    first, slow, last = asyncio.run(run())

    assert isinstance(slow, tuple)
    assert (slow[1].key, slow[1].value) == (b"s", SLOW)
    assert apart.calls == 1
    assert here == [line("a"), SLOW, line("b")]  # the slow line only once, in the child
    assert isinstance(first, tuple)
    assert isinstance(last, tuple)


def test_a_line_that_takes_too_long_to_read_is_quarantined() -> None:
    """A line that takes too long is quarantined with the reason, without a second try."""

    class TooLong:
        async def __call__(self, call: object) -> Any:
            raise TimeoutError

    inbox = new_intake()
    inbox.apart = TooLong()

    read = asyncio.run(inbox._read(unread(SLOW)))

    assert isinstance(read, str)
    assert "takes too long to check" in read


@pytest.mark.timeout(60)
def test_a_line_is_read_in_a_real_child() -> None:
    """A real child returns the same results and the same errors."""
    bad = line("a", schema={"pattern": r"\pL{300}", "type": "no such type"})
    inbox = new_intake()

    async def run() -> list[Any]:
        inbox.apart = executor = ChildExecutor(limit_s=60.0)
        read = [await inbox._read(unread(value)) for value in (SLOW, bad)]
        executor.close()
        return read

    slow, rejected = asyncio.run(run())

    assert slow == foreign_records.task_of(
        key=None, value=SLOW, headers=[], group="g", max_attempts_of=lambda _kind: 5
    )
    assert isinstance(rejected, str)
    assert rejected.startswith("schema is not a valid JSON Schema")


def test_a_page_gives_way_as_long_as_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a page has slow lines, half of the time is left to everything else."""
    slept: list[float] = []

    class Clock:
        time_s = 0.0

        def now_s(self) -> float:
            self.time_s += 0.004
            return self.time_s

        def utc_s(self) -> float:
            return self.time_s

        async def sleep(self, delay_s: float) -> None:
            slept.append(delay_s)

    inbox = new_intake()
    inbox.clock = clock = Clock()
    accepted: list[int] = []

    async def accept(_batch: str, tasks: Sequence[Any]) -> list[Any]:
        accepted.append(len(tasks))
        return []

    monkeypatch.setattr(inbox, "_accept", accept)

    asyncio.run(inbox._take([unread(line(str(offset)), offset) for offset in range(60)]))

    assert sum(slept) > clock.time_s / 3
    assert accepted == [60]


def test_a_true_cancellation_of_the_intake_passes() -> None:
    """Only a cancellation of the intake itself ends it."""

    class Waits:
        async def __call__(self, call: object) -> Any:
            await asyncio.get_running_loop().create_future()

    inbox = new_intake()
    inbox.apart = Waits()

    async def run() -> None:
        reading = asyncio.ensure_future(
            inbox._read(unread(line("a", schema={"pattern": r"\pL{300}"})))
        )
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(run())


@every_failure
def test_a_record_of_the_quarantine_or_of_dead_letters_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A bad record of the quarantine or of dead letters is a LineError, which a replay catches."""
    monkeypatch.setattr(foreign_records, "headers_blob", failing(error))

    with pytest.raises(LineError, match=names(error)):
        foreign_records.task_of(
            key=None, value=line("a"), headers=[], group="g", max_attempts_of=lambda _kind: 5
        )


@every_failure
def test_a_suspect_whose_headers_cannot_be_kept_is_kept_without_them(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A rejected record whose headers cannot be stored is stored without them.

    A replay needs only its value.
    """
    monkeypatch.setattr(
        quarantine, "headers_blob", failing(error, quarantine.headers_blob, on=bool)
    )
    rejected = RejectedRecord(
        topic_id="id",
        topic="g.inbox",
        partition=0,
        offset=5,
        key=b"k",
        value=b"value",
        headers=[("h", b"x")],
        reason="is not JSON",
    )

    row = quarantine._row("g", rejected)

    assert (row["record_value"], row["headers"], row["record_offset"]) == (b"value", b"[]", 5)
    assert names(error) in str(row["error_text"])


def test_damaged_stored_headers_are_reported() -> None:
    """Damaged stored headers are an error.

    If they were ignored, a replay would put the task into another batch.
    """
    with pytest.raises(LineError, match="cannot be read"):
        headers_of(b'[["docllm-batch"')


# ---- records of the tasks


@every_failure
def test_a_publication_whose_reading_fails_is_quarantined(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A publication whose headers cannot be read is quarantined: anybody may have written them."""
    monkeypatch.setattr(decoder, "decode", failing(error))
    record = Record(
        partition=INBOX,
        offset=3,
        timestamp_ms=0,
        key=b"k",
        value=b"{}",
        headers=encode(Publication(ledger=LEDGER, group="g", batch="b", task_id=7, fence=0)),
    )

    read = RecordDecoder(ledger_id=LEDGER, group="g", naming=RouteNames(Config())).read(record)

    assert isinstance(read, RejectedRecord)
    assert names(error) in read.reason
    assert (read.key, read.value, read.offset) == (b"k", b"{}", 3)


@every_failure
def test_a_body_that_cannot_be_read_has_the_default_route(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A body that cannot be read has the default route; its attempt gives it up later."""
    monkeypatch.setattr(orjson, "loads", failing(error))

    assert naming.plan_of_body(b"{}", naming.RouteNames(Config())).route == naming.DEFAULT


@pytest.mark.parametrize(
    "error", [error for error in FAILURES if not isinstance(error, MemoryError)], ids=names
)
def test_a_task_that_cannot_be_read_is_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A task that cannot be read becomes a dead letter without a call."""
    monkeypatch.setattr(runner, "parse_again", failing(error))
    harness = handlers_harness()

    outcome = harness.run()

    assert isinstance(outcome, Dead)
    assert (outcome.failure.error_class, outcome.disposition) == ("UNDECODABLE", "undecodable")
    outcome.failure.text.encode()
    assert not harness.llm.calls


# ---- replies


@every_failure
def test_a_reply_whose_judging_fails_is_bad_output_and_is_paid(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A reply whose judging fails is bad output, and its call is paid."""
    monkeypatch.setattr(validator, "first_error", failing(error))
    monkeypatch.setattr(fitness, "is_soon_explained", lambda *_: True)

    outcome = handlers_harness().run({"id": "a", "prompt": "p", "schema": {"type": "array"}})

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "BAD_OUTPUT"
    outcome.failure.text.encode()
    assert outcome.spent.model == "m"


@every_failure
@pytest.mark.parametrize("place", ["_first_choice", "_count", "read_answer"])
def test_any_failure_during_judging_is_bad_output(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, place: str
) -> None:
    """Any failure during judging is bad output: every reply has an outcome."""
    monkeypatch.setattr(completions, place, failing(error))

    outcome = judge(Reply(200, {}, completion()), FACTS)

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "BAD_OUTPUT"


@every_failure
def test_a_status_decides_where_the_body_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """If the body cannot be read, the status decides: a rate limit stays one.

    It is free of charge, and the whole route must notice it.
    """
    monkeypatch.setattr(orjson, "loads", failing(error, orjson.loads, on=bool))

    outcome = judge(Reply(429, {}, b'{"error": {}}'), FACTS)

    assert failure_of(outcome).error_class == "RATE"


@every_failure
def test_a_probe_with_an_unreadable_answer_counts_by_its_status(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A probe whose answer cannot be read counts by its status, and does not end the agent."""
    monkeypatch.setattr(orjson, "loads", failing(error, orjson.loads, on=bool))

    assert by_answer(Reply(429, {}, b"{}")).effect is Effect.REFUSAL
    assert by_answer(Reply(200, {}, completion())).effect is Effect.OUTAGE


def test_a_panic_of_the_http_client_is_one_calls_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic of the HTTP client is one call's failure, which may have been billed.

    A cancellation is none.
    """

    async def call(error: BaseException) -> object:
        client = ChatClient(base_url="http://localhost:9", api_key=None)
        monkeypatch.setattr(client, "_request", failing(error))
        try:
            return await client.complete(Call(b"{}", "id", 1.0))
        finally:
            await client.close()

    answer = asyncio.run(call(PanicError("lost")))
    assert isinstance(answer, CallFailed)
    assert (answer.error_class, answer.text) == (
        "AMBIGUOUS",
        "the HTTP client fails: PanicError: lost",
    )
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call(asyncio.CancelledError()))


def test_a_schema_that_makes_the_validator_panic_fails_its_task_alone() -> None:
    """A schema that makes the validator panic fails only its task.

    A handler may bring a schema that nobody has compiled before.
    """
    outcome = judge(Reply(200, {}, completion("[]")), _with_schema(PANIC))

    assert failure_of(outcome).error_class == "BAD_REQUEST"
    assert "PanicException" in failure_of(outcome).text


def _with_schema(schema: dict[str, Any]) -> Any:
    return type(FACTS)(
        **{name: getattr(FACTS, name) for name in FACTS.__dataclass_fields__} | {"schema": schema}
    )


# ---- documents


@pytest.mark.parametrize(
    "error", [error for error in FAILURES if not isinstance(error, MemoryError)], ids=names
)
def test_a_document_whose_reading_fails_is_one_tasks_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, error: BaseException
) -> None:
    """A document whose reading fails is one task's failure: a SystemExit would end the agent."""
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.setattr(by_content, "kind_of", failing(error))
    reader = file_documents(tmp_path)

    with pytest.raises(DocumentError) as raised:
        asyncio.run(reader.read((tmp_path / "a.txt").as_uri(), Expected()))

    assert raised.value.failure.error_class == "DOCUMENT_UNREADABLE"
    raised.value.failure.text.encode()


# ---- exports


@pytest.fixture
def ended() -> ExportedTask:
    """Return a task that has succeeded."""
    at = datetime(2027, 1, 31, 18, 0, tzinfo=UTC).replace(tzinfo=None)
    return ExportedTask(
        task_id=7,
        key="a",
        status=Status.SUCCEEDED,
        counted_attempts=0,
        input=line("a"),
        tokens_in=1,
        tokens_out=1,
        cost_micro=0,
        result=Result(codec=0, body=completion(), model="m", call_id="t", created_at=at),
        letter=None,
    )


@every_failure
def test_one_result_that_cannot_be_written_keeps_no_other_from_being_exported(
    monkeypatch: pytest.MonkeyPatch, ended: ExportedTask, error: BaseException
) -> None:
    """A result that cannot be written gets an error line, and the others are exported."""
    for line_of in (docllm_line, openai_line):
        written = exports.written(
            ended, failing(error, line_of, on=lambda task: task.result is not None)
        )

        assert written is not None
        assert orjson.loads(written)["error"]["code"] == "UNREADABLE"


# ---- texts


def test_a_handlers_error_with_half_a_letter_keeps_its_text() -> None:
    """A handler's error with half a surrogate pair keeps its text, and its task is retried."""

    async def handler(_context: object) -> None:
        raise ValueError("page 7: \ud800 is no letter \u202eevil\x9b31m")

    outcome = handlers_harness(document=handler).run()

    assert isinstance(outcome, Retry)
    assert outcome.failure.text == "ValueError: page 7: \ufffd is no letter \ufffdevil 31m"


def test_the_guards_against_failures_do_not_change_a_success(ended: ExportedTask) -> None:
    """The guards change nothing for a success."""
    assert isinstance(judge(Reply(200, {}, completion()), FACTS), Succeeded)
    assert exports.written(ended, docllm_line) == docllm_line(ended)
