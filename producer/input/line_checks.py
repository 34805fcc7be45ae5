"""Refuses lines by what a load knows beside the line itself: types, routes, prompts, documents.

The line itself is checked in `docllm.schemas.task.line.parsing`.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from docllm.producer.input.document_source import problem_of_text
from docllm.producer.input.excluded_files import file_of, own_files, resolved, root_of
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.account import configured_route, configured_routes
from docllm.schemas.settings.claim_time import limit_of, over_limit
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.fallback import chain
from docllm.schemas.task.line.field_checks import is_file_uri
from docllm.schemas.task.line.parsing import PLACEHOLDER, is_exact
from docllm.schemas.text.document_text import NoTextError
from docllm.schemas.text.wording import did_you_mean

_NAMED = 8  # known types that an error names
_PART_BYTES = 64 << 10
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LineChecks:
    """Finds the tasks of a load that would certainly fail, or wait in every agent.

    - `reported` are the types that agents of the group know.
    - `types` are those that the person who loads lets through.
    - `routes` bounds the routes of lines that set no bounds of their own.
    - `begin` is when the tasks may run whose lines do not say it.

    Of each object that a line names for its result, two hashes are kept.
    Raises ConfigError if `routes` names a route that is not configured.
    """

    def __init__(
        self,
        config: Config,
        *,
        reported: Collection[str] = (),
        types: Collection[str] = (),
        routes: tuple[str, ...] | None = None,
        begin: datetime | None = None,
    ) -> None:
        self._config = config
        self._types = {*config.known_types, *reported, *types}
        self._prompts = {
            name: settings.prompt
            for name, settings in config.types.items()
            if settings.handler is None and name not in types
        }
        self._routes = configured_routes(config)
        self._allowed = routes
        self._begin = begin
        self._roots, self._own = resolved(config.roots()), resolved(own_files(config))
        self._objects: dict[int, int] = {}
        for name in routes or ():
            if name not in self._routes:
                fix = self._fix_of_route(name)
                raise ConfigError(f"--routes-allowed: {name!r} is no route; {fix}")

    def checked(
        self, lines: Iterable[ValidLine | InvalidLine]
    ) -> Iterator[ValidLine | InvalidLine]:
        """Yield the lines; one that a check refuses becomes a bad line, with the first reason."""
        checks = (
            self._check_type,
            self._check_prompt,
            self.check_route,
            self._check_document,
            self._check_object,
            self._check_begin,
        )
        for line in lines:
            if isinstance(line, InvalidLine):
                yield line
            else:
                yield next(filter(None, (check(line) for check in checks)), line)

    def _check_type(self, line: ValidLine) -> InvalidLine | None:
        """Refuse a type that nobody knows, which most often is misspelt, and too much time."""
        name, asked_s = line.task.type, line.task.time_limit_s
        if name not in self._types:
            return line.refused("type", f"{name!r} is unknown", self._fix_of_type(name))
        if asked_s is None:
            return None
        fault = over_limit(name, asked_s, limit_of(self._config, name))
        return None if fault is None else line.refused("time_limit_s", *fault)

    def _fix_of_type(self, name: str) -> str:
        known = sorted(self._types)
        rest = ", ..." if len(known) > _NAMED else ""
        guess = did_you_mean(name, known, f"known are: {', '.join(known[:_NAMED])}{rest};")
        return (
            f"{guess} a type of your own needs [types.{name}] in the settings; "
            f"if only the agents have it, load with --allow-type {name}"
        )

    def _check_prompt(self, line: ValidLine) -> InvalidLine | None:
        """Refuse a task that neither has a prompt nor takes one that fits from its type.

        Agents may have a handler for a type that only they know.
        """
        task, name = line.task, line.task.type
        if task.body is not None or task.prompt is not None or name not in self._prompts:
            return None
        prompt = self._prompts[name]
        if prompt is None:
            return line.refused(
                "prompt",
                f"is missing, and type {name} has no prompt and no handler here",
                f"write a prompt into the line or into [types.{name}]; "
                f"if only the agents have one, load with --allow-type {name}",
            )
        has_input = task.text is not None or task.uri is not None
        takes_input = PLACEHOLDER in prompt
        if has_input and not takes_input:
            return line.refused(
                "input",
                f"is given, but the prompt of type {name} has no {PLACEHOLDER}",
                f"leave input out, or write {PLACEHOLDER} into the prompt of [types.{name}]",
            )
        if takes_input and not has_input:
            return line.refused(
                "input",
                f"is missing, but the prompt of type {name} has {PLACEHOLDER}",
                f"add input.text or input.uri, or give the line a prompt without {PLACEHOLDER}",
            )
        return None

    def check_route(self, line: ValidLine) -> InvalidLine | None:
        """Refuse a task that names a route which nobody configured, or that may take no route."""
        task = line.task
        named = [("route", task.route or "")]
        named += [("routes_allowed", name) for name in task.routes_allowed or ()]
        for field, name in named:
            if name and name not in self._routes:
                fix = self._fix_of_route(name)
                return line.refused(field, f"names {name!r}, which is no route", fix)
        allowed = self._allowed if task.routes_allowed is None else task.routes_allowed
        if allowed is None:
            return None
        own = configured_route(self._config, task.type, task.model, task.route)
        if own is not None:
            routes = own, *(step.route for step in chain(self._config, own))
            if any(name in allowed for name in routes):
                return None
        own_route = f"the route {own}" if own else f"a route for the model {task.model}"
        return line.refused(
            "routes_allowed" if task.routes_allowed is not None else "",
            f"has neither {own_route} nor a fallback of it in {', '.join(allowed)}",
            "name an allowed route as the task's `route`, or allow its own one",
        )

    def _fix_of_route(self, name: str) -> str:
        guess = did_you_mean(name, self._routes, f"known are: {', '.join(self._routes)};")
        return f"{guess} a route needs [routes.NAME] in the settings of load and of the agents"

    def _check_document(self, line: ValidLine) -> InvalidLine | None:
        """Refuse a task whose document, named by URI, is blank.

        Only documents that agents may read are opened. A document that cannot be read here is
        accepted, because an agent on another machine may be able to read and check it.
        """
        uri = line.task.uri
        if uri is None or not is_file_uri(uri) or line.document:  # --documents reads its files
            return None
        target = file_of(uri)
        if target is None or root_of(target, self._roots, self._own) is None:
            return None
        if not (problem := _problem_of_file(target)):
            return None
        fix = "leave the line out, or name a document with text"
        return line.refused("input.uri", f"names a document that {problem}", fix)

    def _check_object(self, line: ValidLine) -> InvalidLine | None:
        """Refuse a second task for an object: its result would replace that of the first."""
        uri = line.task.output_uri
        if not is_exact(uri):
            return None
        key = hash(line.key)
        if self._objects.setdefault(hash(uri), key) == key:
            return None
        fix = "name an object of its own, or a folder, with a slash at its end"
        return line.refused("output_uri", "names the object of an earlier line", fix)

    def _check_begin(self, line: ValidLine) -> InvalidLine | None:
        """Refuse a task that would begin after its deadline, which is to say never."""
        task = line.task
        if self._begin is None or task.not_before is not None or task.deadline is None:
            return None
        if task.deadline > self._begin:
            return None
        return line.refused(
            "deadline",
            "is not after --not-before",
            "give a later deadline, or an earlier --not-before",
        )


def _problem_of_file(path: Path) -> str:
    """Return what is wrong with a file, as far as it can be read here."""
    try:
        handle = os.open(path, _OPEN)
    except OSError:
        return ""
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_DOCUMENT_BYTES:
            return ""
        return problem_of_text(iter(lambda: os.read(handle, _PART_BYTES), b""))
    except (OSError, NoTextError):
        return ""
    finally:
        os.close(handle)
