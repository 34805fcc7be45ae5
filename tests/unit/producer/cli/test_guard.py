"""The options of `guard`."""

import pytest

from docllm.producer.cli.parser import parser


@pytest.mark.parametrize(
    "line",
    [
        "guard open night --type invoice --route fast --group g",
        "guard open --type invoice --route fast --group g night",
        "guard open --group g --type invoice night --route fast",
    ],
)
def test_a_batchs_guards_are_named_in_any_order(line: str) -> None:
    """A batch's guards are selected with options in any order.

    `argparse` refuses an optional argument that follows an option, but the batch is required.
    """
    options = parser().parse_args(line.split())

    assert (options.batch, options.type, options.route, options.group) == (
        "night",
        "invoice",
        "fast",
        "g",
    )
