"""The topic family of a group."""

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.task.record.topics import Topics, duration_s


def test_a_group_has_its_family() -> None:
    """A group has three lanes, one topic for each tier, dead letters, and an inbox."""
    topics = Topics("docllm", ("30s", "1h"))

    assert topics.names == (
        "docllm.tasks.urgent",
        "docllm.tasks",
        "docllm.tasks.bulk",
        "docllm.retry.30s",
        "docllm.retry.1h",
        "docllm.dlq",
        "docllm.inbox",
    )
    assert [topics.destination(name) for name in topics.names] == list(topics.destinations)


def test_a_group_may_have_a_topic_of_results() -> None:
    """A tier that is found later changes nothing about it."""
    topics = Topics("docllm", ("30s",), results=True).with_old_tiers(["docllm.retry.1h"])

    assert topics.destinations[-3:] == ("dlq", "inbox", "results")
    assert "retry.1h" in topics.destinations


def test_each_kind_of_topic_has_its_own_consumer_group() -> None:
    """The normal lane's consumer group has the group's name, the others their topic's name."""
    topics = Topics("docllm")

    assert topics.consumer_group("tasks") == "docllm"
    for destination in ("tasks.urgent", "tasks.bulk", "retry.30s"):
        assert topics.consumer_group(destination) == f"docllm.{destination}"


def test_a_group_whose_name_holds_dots_keeps_its_destinations() -> None:
    """Only the group's own prefix is removed, even if the name has dots."""
    assert Topics("a.retry").destination("a.retry.retry.30s") == "retry.30s"


@pytest.mark.parametrize("name", ["", ".x", "-x", "a b", "ä", "a" * 101, "a/b", "a\n"])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    """A name that no topic can have is refused, with the rule."""
    with pytest.raises(ConfigError, match="letters, digits"):
        Topics(name)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("2d", 172_800)]
)
def test_durations(text: str, seconds: int) -> None:
    """A duration is a number and a unit."""
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "0s", "-1s", "1.5h", "1w", "05s", "5 m", "9999999s", "5m\n", "\u0665m"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    """The error for an invalid duration shows a valid one."""
    with pytest.raises(ConfigError, match="for example 30s"):
        duration_s(text)
