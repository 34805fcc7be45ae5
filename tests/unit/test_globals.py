"""Modules keep nothing that changes: several agents may run in one process, as in a simulation."""

import ast

from tests.support.syntax import sources

GLOBALS = {
    "_EPOCHS in agent/consumer/embedded/partitions.py": "a number is given once in a process",
    "_TOLD in producer/tracing/spans.py": "each kind of error is logged once in a process",
    "_cancelled in agent/process/containment.py": "an asyncio task has no place for the mark",
    "_cancelled in docllm/commands.py": "each thread and asyncio task has its own value",
    "_in_handler in agent/process/containment.py": "each asyncio task has its own value",
}


def changes(value: ast.expr | None) -> bool:
    """Return whether a module's value is made to be filled later."""
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(func=ast.Name(id="ContextVar" | "WeakSet" | "count")):
            return True
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            return name in {"Counter", "deque", "dict", "list", "set"}
    return False


def test_modules_keep_nothing_that_changes() -> None:
    """State belongs to an object that is passed on; each exception has its reason."""
    found = {
        f"{ast.unparse(target)} in {path}"
        for path, source in sources().items()
        for node in source.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and changes(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    rebound = [
        f"{path}:{node.lineno}"
        for path, source in sources().items()
        for node in source.nodes
        if isinstance(node, ast.Global)
    ]

    assert (found, rebound) == (set(GLOBALS), [])
