"""Objects as task lines: names, patterns, and objects that no agent could read."""

from collections.abc import Iterator

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.producer.input.object_documents import objects_batch, read_objects
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.objects.address import ObjectAddress
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.objects.store import ObjectEntry, ObjectStores

PROMPT = "Sum up: {document}"


class Listed(ObjectStores):
    """Stores whose listing has these names and sizes, and then perhaps a fault."""

    def __init__(self, *names: tuple[str, int], fault: ObjectFault | None = None) -> None:
        super().__init__()
        self.names = names
        self.fault = fault
        self.prefixes: list[str] = []

    def entries(self, prefix: str) -> Iterator[ObjectEntry]:
        self.prefixes.append(prefix)
        for name, size in self.names:
            yield ObjectEntry(ObjectAddress("s3", "b", f"in/{name}").uri, name, size, '"e1"')
        if self.fault:
            raise ObjectError(self.fault, f"{prefix} fails")


def lines(stores: Listed, source: str = "s3://b/in/") -> list[ValidLine | InvalidLine]:
    return list(read_objects(source, {"prompt": PROMPT}, stores))


def ids(stores: Listed, source: str) -> list[str]:
    return [line.key for line in lines(stores, source) if isinstance(line, ValidLine)]


def test_an_object_becomes_a_line_with_its_version() -> None:
    """The id is the name below the prefix; the etag takes the place of a digest."""
    (line,) = lines(Listed(("a b/\u00fc.txt", 7)))

    assert isinstance(line, ValidLine)
    assert orjson.loads(line.value) == {
        "id": "a b/\u00fc.txt",
        "prompt": PROMPT,
        "input": {"uri": "s3://b/in/a%20b/%C3%BC.txt", "size": 7, "etag": '"e1"'},
    }


@pytest.mark.parametrize(
    ("source", "prefix", "found"),
    [
        ("s3://b/in/", "s3://b/in/", ["a.txt", "d/b.txt", "d/c.pdf"]),
        ("s3://b/in", "s3://b/in", ["a.txt", "d/b.txt", "d/c.pdf"]),
        ("s3://b/in/*.txt", "s3://b/in/", ["a.txt"]),
        ("s3://b/in/**/*.txt", "s3://b/in/", ["a.txt", "d/b.txt"]),
        ("s3://b/in/d/[bc].*", "s3://b/in/d/", []),
        ("s3://b/in/?/?.pdf", "s3://b/in/", ["d/c.pdf"]),
        ("s3://b/in/.*/*", "s3://b/in/", [".git/x"]),
    ],
)
def test_a_pattern_chooses_objects(source: str, prefix: str, found: list[str]) -> None:
    """The fixed part of a pattern is listed. Hidden names need a pattern that names their dot."""
    stores = Listed((".git/x", 1), ("a.txt", 1), ("d/.x", 1), ("d/b.txt", 1), ("d/c.pdf", 1))

    if found:
        assert ids(stores, source) == found
    else:
        with pytest.raises(ConfigError, match="no object matches"):
            lines(stores, source)
    assert stores.prefixes == [prefix]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("s3://b/in/2024/", "2024"),
        ("s3://b/in/2024/**/*.txt", "2024"),
        ("gs://b/", "b"),
        ("az://b", "b"),
    ],
)
def test_the_batch_has_the_name_of_the_folder(source: str, name: str) -> None:
    """The last part of the prefix, else the bucket."""
    assert objects_batch(source) == name


@pytest.mark.parametrize(
    ("name", "size", "problem"),
    [
        ("a", 0, "is empty"),
        ("a", (32 << 20) + 1, "is 33554433 bytes long"),
        ("a%2fb", 1, "agents do not read"),
        ("a\\b", 1, "agents do not read"),
        ("a" * 192, 1, "192 bytes"),
    ],
)
def test_an_object_that_no_agent_could_read_is_a_bad_line(
    name: str, size: int, problem: str
) -> None:
    """The other objects are loaded."""
    bad, good = lines(Listed((name, size), ("z", 1)))

    assert isinstance(bad, InvalidLine)
    assert isinstance(good, ValidLine)
    assert (bad.line, bad.document, bad.text) == (1, name, None)
    assert problem in str(bad)


def test_a_listing_that_breaks_off_is_a_bad_line() -> None:
    """What was listed is loaded, and the person is told to load again."""
    good, bad = lines(Listed(("a", 1), fault=ObjectFault.OUTAGE))

    assert isinstance(good, ValidLine)
    assert isinstance(bad, InvalidLine)
    assert "load again" in str(bad)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (ObjectFault.OUTAGE, UnreachableError),
        (ObjectFault.NO_BUCKET, ConfigError),
        (ObjectFault.DENIED, ConfigError),
        (ObjectFault.NOT_INSTALLED, ConfigError),
    ],
)
def test_objects_that_cannot_be_listed_stop_the_load(
    fault: ObjectFault, error: type[Exception]
) -> None:
    """Nothing is loaded, and the exit code says who has to act."""
    with pytest.raises(error, match="s3://b/in/ fails"):
        lines(Listed(fault=fault))


@pytest.mark.parametrize(
    "source", ["s3://", "s3:///a", "s3://b/a//b", "s3://k:s3cret@b/a", "s3://b/../a/"]
)
def test_a_wrong_prefix_is_refused(source: str) -> None:
    """The error shows the right form, and not the wrong one, which may hold a key."""
    with pytest.raises(ConfigError, match="BUCKET/PREFIX") as caught:
        lines(Listed(("a", 1)), source)
    assert "s3cret" not in str(caught.value)
