"""The list of crash points is that of the source.

A new point without a story or without its line in the proof fails here.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.faults import points
from tests.faults.stories import STORIES

PROOF = Path(__file__).parents[2] / "docs" / "explanation" / "proof.md"


def test_every_point_has_a_story() -> None:
    """Each point of the source has a story on each kind of parts, and no story names another."""
    assert {point for story in STORIES for point in story.points_on(kafka=False)} == set(
        points.points()
    )


def test_only_points_of_the_embedded_parts_are_hit_on_them_alone() -> None:
    """Points that Kafka and MariaDB do not hit belong to the embedded bus alone."""
    on_kafka = {point for story in STORIES for point in story.points_on(kafka=True)}
    places = [
        place
        for point, point_places in points.points().items()
        if point not in on_kafka
        for place in point_places
    ]
    assert [
        place for place in places if not re.match(r"producer/bus/|agent/consumer/embedded", place)
    ] == []


def test_names_say_duty_and_step() -> None:
    """A point's name is `<duty>.<what is durable, or about to be>`."""
    assert [
        name
        for name in points.points()
        if not re.fullmatch(r"[a-z]+(_[a-z]+)*\.[a-z]+(_[a-z]+)*", name)
    ] == []


@pytest.mark.parametrize(
    "source",
    [
        "from docllm.schemas.runtime import crash\ncrash.reach(name)",
        "from docllm.schemas.runtime import crash\ncrash.reach('a.b', 1)",
        "from docllm.schemas.runtime import crash\nreach = crash.reach",
        "from schemas import crash as c",
        "from docllm.schemas.runtime.crash import reach",
        "import docllm.schemas.runtime.crash",
    ],
)
def test_a_point_cannot_hide(source: str) -> None:
    """A point with a computed name, or reached by another name, is refused.

    So the list is complete.
    """
    with pytest.raises(ValueError, match="crash"):
        list(points._reached(ast.parse(source), "somewhere.py"))


def test_the_proof_lists_every_crash_point() -> None:
    """The table in `docs/explanation/proof.md` has each point once, in alphabetical order."""
    table = re.search(
        r"^\| point \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PROOF.read_text("utf-8"), re.MULTILINE
    )
    assert table is not None
    assert [line.split("|")[1].strip(" `") for line in table[1].splitlines()] == list(
        points.points()
    )
