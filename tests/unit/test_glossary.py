"""The glossary: one word, one meaning; a class, and what others import, has its own name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/glossary.md").read_text("utf-8")


def section(title: str) -> list[tuple[str, ...]]:
    """Return the rows of the table under a heading."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.split(" | ")) for line in lines[1:]]


def test_words_are_listed_once_and_in_order() -> None:
    """Each word has one row, where a reader looks for it."""
    words = [row[0].removeprefix("| ") for row in section("Words")]
    assert words == sorted(set(words), key=str.lower)


def test_each_word_lives_somewhere_or_is_reserved() -> None:
    """A word names the file in which it lives, unless a later version will use it."""
    for word, meaning, where in section("Words"):
        named = re.fullmatch(r"`([\w/]+\.py)` \|", where)
        assert bool(named) != meaning.startswith("reserved: "), word
        assert named is None or (ROOT / named[1]).exists(), word


def types() -> Iterator[tuple[str, str]]:
    """Yield the name of each class, type alias and TypeVar, and what it stands for.

    A private name counts as a public one. An alias stands for its value, so two modules may give
    one name to one thing. All TypeVars of one name stand for the same.
    """
    for package in ("agent", "producer", "schemas"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    yield node.name.lstrip("_"), f"class in {path}, line {node.lineno}"
            for statement in tree.body:
                match statement:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        if re.fullmatch(r"_?[A-Z]([A-Z]*[a-z]\w*)?", name):
                            is_variable = ast.unparse(value).startswith("TypeVar(")
                            yield name.lstrip("_"), "TypeVar" if is_variable else ast.unparse(value)


def test_the_names_of_types_are_unique() -> None:
    """A class or alias whose name has two meanings is on the glossary's list, with the reason."""
    meanings: defaultdict[str, set[str]] = defaultdict(set)
    for name, meaning in types():
        meanings[name].add(meaning)
    allowed = {row[0].strip("|` ") for row in section("Class names that occur twice")}
    assert {name for name, of_name in meanings.items() if len(of_name) > 1} == allowed


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the packages by its dotted name."""
    for package in ("agent", "producer", "schemas"):
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(("docllm", *path.relative_to(ROOT).with_suffix("").parts))
            yield name.removesuffix(".__init__"), ast.parse(path.read_text("utf-8"))


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Yield the functions and constants of a module."""
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (
                    node.id
                    for target in targets
                    for node in ast.walk(target)
                    if isinstance(node, ast.Name)
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def test_a_name_that_is_imported_bare_is_unique() -> None:
    """Where `from a import name` is written, a reader sees only the name.

    Two modules may define one name if at most one of them is imported from in this way: the other
    is called as `module.name`.
    """
    trees = dict(modules())
    imports = {
        (node.module, alias.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is None
    }
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for module, tree in trees.items():
        for name in defined_names(tree):
            if (module, name) in imports:
                homes[name].add(module)
    assert {name: of_name for name, of_name in homes.items() if len(of_name) > 1} == {}
    assert homes["shown"] == {"docllm.producer.text.printable"}
