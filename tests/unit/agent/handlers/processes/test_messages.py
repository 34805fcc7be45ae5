"""Messages between an agent and a process: whole, or refused."""

import pytest

from docllm.agent.handlers.processes import messages
from docllm.agent.handlers.processes.messages import (
    MESSAGE_HEAD,
    Message,
    MessageError,
    decoded,
    encoded,
    sizes,
)


def test_a_message_arrives_as_it_was_sent() -> None:
    """A message's data are bytes of any kind."""
    sent = Message("call", {"call": 1, "text": "ä"}, b"\xff\x00")

    raw = encoded(sent)
    body, data = sizes(raw[: MESSAGE_HEAD.size])
    rest = raw[MESSAGE_HEAD.size :]

    assert len(rest) == body + data
    assert decoded(rest[:body], rest[body:]) == sent


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"1", b'{"kind":"x"}', b'{"kind":1,"fields":{}}', b"\x80\x04."]
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    """Nothing but an object of the right form is read, and no pickle at all."""
    with pytest.raises(MessageError):
        decoded(body, b"")


def test_a_message_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head alone decides, so that nothing is read."""
    monkeypatch.setattr(messages, "MAX_BYTES", 1 << 20)

    with pytest.raises(MessageError, match="more than 1 MiB"):
        sizes(MESSAGE_HEAD.pack(1 << 20, 1))
    with pytest.raises(MessageError):
        encoded(Message("value", {}, bytes(1 << 20)))
