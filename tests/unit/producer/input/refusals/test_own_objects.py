"""Two tasks of a load may not have one object: the later result would replace the earlier one."""

import orjson

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.refusals.line_checks import checked
from docllm.producer.input.refusals.own_objects import OwnObjects


def line(number: int, name: str, output_uri: str) -> ValidLine | InvalidLine:
    fields = {"id": name, "prompt": "x", "output_uri": output_uri}
    return read_line(number, orjson.dumps(fields))


def test_the_later_of_two_lines_for_one_object_is_refused() -> None:
    """The same line again is a twin, and folders may be shared."""
    lines = [
        line(1, "a", "s3://b/x"),
        line(2, "b", "s3://b/y"),
        line(3, "a", "s3://b/x"),
        line(4, "c", "s3://b/"),
        line(5, "d", "s3://b/"),
        line(6, "e", "s3://b/y"),
    ]

    read = list(checked(lines, [OwnObjects().check]))

    bad = [each for each in read if isinstance(each, InvalidLine)]
    assert [(each.line, each.field) for each in bad] == [(6, "output_uri")]
    assert bad[0].error == "names the object of an earlier line"
