"""Looks at the first lines of an input before anything is loaded.

An input without a task among them is another kind of file. It is named for what it is, once, in
place of one rejected line for each of its lines.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import chain

from docllm.producer.input.foreign_forms import ForeignForm
from docllm.producer.input.lines import STDIN, InvalidLine, ValidLine
from docllm.producer.input.other_files import NoLinesError
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.line.strict_json import NOT_UTF8

SURVEYED = 100  # lines
_ALIKE = 10  # further lines of a form, one after another, that are reported as one
_NAMED = 3  # problems
_OTHER_ENCODING = ForeignForm(
    NOT_UTF8, "save the file as UTF-8: iconv -f ENCODING -t UTF-8 FILE | docllm load -"
)
_VARYING = re.compile(r"\d++|'[^']*+'")


def surveyed(
    lines: Iterator[ValidLine | InvalidLine],
    *,
    source: str,
    batch: str,
    reject_all: bool = False,
) -> Iterator[ValidLine | InvalidLine]:
    """Return the lines of an input, with the first ones read, up to a task.

    Raises ConfigError if the input holds no task lines: it is of another kind, or none of its first
    lines is a task, unless `reject_all`. A shorter input is refused if each line has a foreign
    form; otherwise its lines are rejected one by one.
    """
    bad: list[InvalidLine] = []
    try:
        for line in lines:
            if isinstance(line, ValidLine):
                return _named_once(chain(bad, (line,), lines))
            bad.append(line)
            if _is_alone(line) or (len(bad) == SURVEYED and not reject_all):
                raise _no_tasks(bad)
            if len(bad) == SURVEYED:
                return _named_once(chain(bad, lines))
        if bad and all(line.form is not None for line in bad):
            raise _no_tasks(bad)
    except NoLinesError as refusal:
        error, fix = refusal.error, refusal.fix
    else:
        return iter(bad)
    name = "standard input"
    if source != STDIN:
        name, fix = source, re.sub(r"\bFILE\b", lambda _: shlex.quote(source), fix)
    fix = fix.replace("| docllm load -", f"| docllm load - --batch {shlex.quote(batch)}")
    raise ConfigError(f"{name}: {error}; {fix}; nothing is loaded")


def _is_alone(line: InvalidLine) -> bool:
    return line.form is not None and line.form.alone


def _no_tasks(bad: Sequence[InvalidLine]) -> NoLinesError:
    """Return the error for an input that begins with these lines."""
    if _is_alone(bad[-1]):
        bad = bad[-1:]
    different: dict[str, InvalidLine] = {}
    for line in bad:
        different.setdefault(_VARYING.sub("N", _problem(line)), line)
    shown = list(different.values())[:_NAMED]
    error = ", ".join(f"{line.noun} {line.line} {_problem(line)}" for line in shown)
    if len(bad) > 1:
        first = "the first " if len(bad) == SURVEYED else "its "
        error += f", and none of {first}{len(bad)} {bad[0].noun}s is a task"
    return NoLinesError(error, fix=bad[0].form.fix if bad[0].form else bad[0].fix)


def _problem(line: InvalidLine) -> str:
    return line.problem if line.form is None else line.form.error


def _form(line: ValidLine | InvalidLine) -> ForeignForm | None:
    """Return the form of a line; a bad line in another encoding has one among others only."""
    if isinstance(line, ValidLine):
        return None
    return _OTHER_ENCODING if line.error.startswith(NOT_UTF8) else line.form


def _named_once(
    lines: Iterator[ValidLine | InvalidLine],
) -> Iterator[ValidLine | InvalidLine]:
    """Yield the lines; many lines of one foreign form, one after another, are one bad line."""
    run: list[InvalidLine] = []
    form: ForeignForm | None = None
    last = 0
    for line in lines:
        of_line = _form(line)
        if run and of_line != form:
            yield from _run(run, form, last)
            run = []
        form, last = of_line, line.line
        if form is None or isinstance(line, ValidLine):
            yield line
        elif len(run) < _ALIKE:
            run.append(line)
    yield from _run(run, form, last)


def _run(run: Sequence[InvalidLine], form: ForeignForm | None, last: int) -> Iterator[InvalidLine]:
    """Yield lines of one form, the last of which is line `last`: one line for many."""
    if form is not None and len(run) == _ALIKE:
        noun = run[0].noun
        error = f"{form.error}, as is each {noun} up to {last}"
        yield InvalidLine(run[0].line, form.field, error, form.fix, None, form=form, noun=noun)
    else:
        yield from run
