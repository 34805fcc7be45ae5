"""A record passes through the five calls that the composition root names, in their order."""

import inspect
import re
from importlib import import_module

import docllm.agent.wiring
from tests.integration.support.deployment import Deployment

CALLS = re.findall(
    r"^ +(\w+)\.(\w+)\(([\w, ]+)\) +(\S+)\.py$", docllm.agent.wiring.__doc__ or "", re.MULTILINE
)
# The agent's own program. Each of the five calls leaves a line in a file: its name and its tasks.
NOTING = """
import sys
from importlib import import_module
from docllm.agent.cli.parser import main

def noting(owner, name, method):
    def noted(self, first, *args, **options):
        records = first if isinstance(first, list) else [first]
        ids = [getattr(record, "delivery", record).task_id for record in records]
        with open("calls.txt", "a") as file:
            print(f"{owner}.{name}", *ids, file=file)
        return method(self, first, *args, **options)
    return noted

for owner, name, module in %r:
    kind = getattr(import_module(module), owner.title().replace("_", ""))
    setattr(kind, name, noting(owner, name, getattr(kind, name)))
sys.exit(main(sys.argv[1:]))
"""


def test_the_named_calls_are_the_path_of_a_record(embedded: Deployment) -> None:
    """Each call is made once for the record, none twice, and in the order of the docstring."""
    embedded.llm()
    embedded.load(1)
    calls = [(owner, name, f"docllm.{path.replace('/', '.')}") for owner, name, _, path in CALLS]
    (embedded.folder / "noting.py").write_text(NOTING % (calls,))

    finished = embedded.start("noting", "--slots", "1", "--until-done")

    assert finished.wait(60) == 0, finished.tail()
    noted = (embedded.folder / "calls.txt").read_text().splitlines()
    assert [line.split()[0] for line in noted] == [f"{owner}.{name}" for owner, name, _ in calls]
    assert len({line.split()[1] for line in noted}) == 1, "all are about the same task"


def test_the_named_calls_take_the_documented_arguments() -> None:
    """Five calls are named, with the parameters that they have."""
    assert len(CALLS) == 5
    for owner, name, parameters, path in CALLS:
        kind = getattr(
            import_module(f"docllm.{path.replace('/', '.')}"), owner.title().replace("_", "")
        )
        assert list(inspect.signature(getattr(kind, name)).parameters) == [
            "self",
            *parameters.split(", "),
        ]
