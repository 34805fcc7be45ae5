"""Options may stand before and after what a command is about."""

import pytest

from producer.__main__ import _parser


@pytest.mark.parametrize(
    "line",
    [
        "guard open night --type invoice --route fast --group g",
        "guard open --type invoice --route fast --group g night",
        "guard open --group g --type invoice night --route fast",
    ],
)
def test_a_batchs_guards_are_named_in_any_order(line: str) -> None:
    """`argparse` refuses an argument that may be missing once it follows an option; the batch may not be missing."""
    options = _parser().parse_args(line.split())

    assert (options.batch, options.type, options.route, options.group) == ("night", "invoice", "fast", "g")
