"""Wordings that a person teaches a route: how they are checked, and how they match."""

import pickle
from pathlib import Path

import pytest

from docllm.schemas.settings.account import account
from docllm.schemas.settings.wordings import MAX_TEXTS, READ_CHARS, Wordings
from docllm.schemas.task.failures import ErrorClass
from tests.support.settings import fault, load

TOML = """
[routes.large]
base_url = "http://other/v1"
[routes.large.wordings]
TOO_LONG = ["max input reached", '/window of \\d+ is full/']
FILTERED = ["computer says no"]
"""


def test_a_route_has_its_own_wordings(tmp_path: Path) -> None:
    """The table is the value of one setting, and other routes do not have it."""
    config = load(tmp_path, TOML)

    assert account(config, "large").wordings == {
        "TOO_LONG": ("max input reached", r"/window of \d+ is full/"),
        "FILTERED": ("computer says no",),
    }
    assert account(config, "default").wordings == {}


def test_the_default_route_may_be_taught(tmp_path: Path) -> None:
    """The route of `[llm]` has the name default."""
    config = load(tmp_path, "[routes.default.wordings]\nRATE = ['not so fast']")

    assert account(config, "default").wordings == {"RATE": ("not so fast",)}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("TOO_LONGER = ['x']", "'TOO_LONGER' is no class; the classes are TOO_LONG, FILTERED"),
        ("SERVER = ['x']", "'SERVER' is no class"),
        ("MONEY = 'x'", "MONEY: write a list of texts"),
        ("MONEY = [1]", "MONEY: write a list of texts"),
        ("MONEY = ['x', ' ']", "MONEY, text 2: write 1 to 200 characters"),
        (f"MONEY = ['{'x' * 201}']", "MONEY, text 1: write 1 to 200 characters"),
        (f"MONEY = {['x'] * (MAX_TEXTS + 1)}", f"MONEY: it has {MAX_TEXTS + 1} texts"),
        ("AUTH = ['/(a/']", "AUTH, text 1: the expression is broken"),
        ("AUTH = ['/(a)\\1/']", "AUTH, text 1: the expression is broken, too large, or has"),
        ("AUTH = ['/(?=a)b/']", "AUTH, text 1: the expression is broken, too large, or has"),
        ("AUTH = ['/((\\pL{90}){90}){90}/']", "AUTH, text 1: the expression is broken, too large"),
    ],
)
def test_a_wrong_wording_is_named_with_its_section(tmp_path: Path, line: str, why: str) -> None:
    """A class that cannot be taught, or an expression that cannot be used, is refused."""
    text = fault(tmp_path, f"[routes.r]\nmodel = 'm'\n[routes.r.wordings]\n{line}")

    assert text.startswith("docllm.toml line 3: routes.r.wordings is wrong; ")
    assert why in text


def test_wordings_are_a_table(tmp_path: Path) -> None:
    """A list belongs to a class."""
    text = fault(tmp_path, "[routes.r]\nwordings = ['x']")

    assert "routes.r.wordings is wrong; write a table, such as { TOO_LONG = [" in text


def test_texts_ignore_capitals_and_expressions_do_not() -> None:
    """Plain texts occur anywhere; the first class in the table decides."""
    wordings = Wordings({"FILTERED": ("No WAY",), "RATE": ("/[Nn]ot so fast$/", "/", "//")})

    assert wordings.class_of("403: there is no way through") == ErrorClass.FILTERED
    assert wordings.class_of("not so fast") == ErrorClass.RATE
    assert wordings.class_of("NOT SO FAST") is None
    assert wordings.class_of("not so fast, please") is None
    assert wordings.class_of("with a // comment") == ErrorClass.RATE


def test_no_wordings_are_false() -> None:
    """A route without wordings is told by one look."""
    assert not Wordings({})
    assert not Wordings({"RATE": ()})
    assert Wordings({"RATE": ("x",)})


def test_wordings_reach_the_process_that_judges_a_large_reply() -> None:
    """Expressions cannot be pickled; without them the answer that was paid for would be lost."""
    sent = pickle.dumps(Wordings({"RATE": ("/not +so fast/",), "MONEY": ("pay",)}))

    received = pickle.loads(sent)  # noqa: S301 - made above

    assert received.class_of("not  so fast") == ErrorClass.RATE
    assert received.class_of("please pay") == ErrorClass.MONEY


def test_only_the_beginning_of_a_text_is_matched() -> None:
    """What is matched is bounded, whatever a server sends."""
    wordings = Wordings({"RATE": ("end",), "MONEY": ("/end/",)})

    assert wordings.class_of("x" * READ_CHARS + "end") is None


def test_an_expression_that_would_backtrack_is_matched_in_linear_time() -> None:
    """The library has no backtracking: a nested repetition ends, with the right answer."""
    wordings = Wordings({"RATE": (r"/^(([a-z])+.)+[A-Z]([a-z])+$/", "/(a|aa)+$/")})

    assert wordings.class_of("a" * 4_000 + "!") is None
    assert wordings.class_of("a" * 4_000) == ErrorClass.RATE
