"""The arguments of `show`, `dead` and `replay`.

It imports no library and no command.
"""

from pathlib import Path

from docllm.producer.cli.options.arguments import (
    MAX_NUMBER,
    named,
    per_second,
    up_to,
    utf8_text,
)
from docllm.producer.cli.options.retention import add_dead_trim
from docllm.producer.cli.options.strict_parser import (
    Imported,
    Parser,
    Subparsers,
    add_consent,
    add_json,
)
from docllm.producer.ledger.dead_letters.selection import DISPOSITIONS
from docllm.producer.limits import CAP
from docllm.schemas.task.hooks import HookEvent

_DEAD = "Show dead letters and quarantined records, and why their tasks died."
_DEAD_LIST = (
    "Show groups of one error and disposition: how many, since when, at what cost, and an example."
)
_DEAD_EXPORT = (
    "Write the task lines of dead tasks as they were loaded, with what replays have changed. Edit "
    "them, and load them into another batch."
)
_SHOW = (
    "Show everything about one task or record: state, attempts with error, call id and cost, "
    "what the model said, dead letter, input, answer."
)
_DEAD_HOOKS = (
    "Show the hooks that failed too often, and why. With --retry, agents run them again; their "
    "tasks stay as they are."
)


def add_dead(commands: Subparsers) -> None:
    """Add `dead` and its actions."""
    actions = commands.add_group("dead", "show dead letters, and why their tasks died", _DEAD)
    _add_list(actions)
    add_show(actions)
    _add_export(actions)
    _add_hooks(actions)
    add_dead_trim(actions)


def _add_list(actions: Subparsers) -> None:
    listed = actions.add(
        "list", "show groups of one error, the largest first", description=_DEAD_LIST
    )
    add_selection(listed)
    listed.add_argument("--ids", action="store_true", help="ids alone, one on each line, for pipes")
    add_json(listed, ", with all groups")
    listed.set_defaults(run=Imported("docllm.producer.cli.dead:list_groups"))


def _add_export(actions: Subparsers) -> None:
    exported = actions.add(
        "export", "write the lines of dead tasks, to edit and load", description=_DEAD_EXPORT
    )
    exported.add_argument("file", type=named, metavar="FILE", help="a file, or '-' for stdout")
    add_selection(exported)
    exported.set_defaults(run=Imported("docllm.producer.cli.dead_export:export"))


def add_show(commands: Subparsers) -> None:
    """Add `show`, which is an action of `dead` too."""
    parser = commands.add("show", "show everything about one task or record", description=_SHOW)
    add = parser.add_argument
    add("id", type=named, metavar="ID", help="a task's id, or quarantine:N for a record")
    add("--batch", type=named, metavar="NAME", help="the batch, if several have the id")
    add("--full", action="store_true", help="the whole input and answer, with their line ends")
    add_json(parser, ", with the whole input and answer")
    parser.set_defaults(run=Imported("docllm.producer.cli.show:show"))


def _add_hooks(actions: Subparsers) -> None:
    hooks = actions.add(
        "hooks", "show hooks that were given up, or have them run again", description=_DEAD_HOOKS
    )
    hooks.add_argument("--type", type=named, metavar="TYPE", help="only those of this type")
    hooks.add_argument(
        "--event", choices=[str(event) for event in HookEvent], help="only those of on_EVENT"
    )
    hooks.add_argument("--retry", action="store_true", help="run them again, five times at most")
    add_json(hooks)
    hooks.set_defaults(run=Imported("docllm.producer.cli.dead:given_up"))


def add_replay(commands: Subparsers) -> None:
    """Add `replay`."""
    parser = commands.add(
        "replay",
        "try dead letters again",
        "Agents apply it, even after this command ended.",
    )
    add = parser.add_argument
    add_selection(parser)
    add("--all", action="store_true", help="every dead letter of the group")
    add(
        "--cancelled",
        action="store_true",
        help="cancelled tasks instead; opens their batches again",
    )
    add(
        "--refresh-documents",
        action="store_true",
        help="run with the documents as they are now",
    )
    add("--model", type=utf8_text, metavar="M", help="run with this model")
    add("--route", type=named, metavar="NAME", help="run on this route, with its own model")
    add(
        "--prompt",
        type=utf8_text,
        metavar="TEXT",
        help="run with this prompt, or that of this file",
    )
    add("--schema", type=Path, metavar="FILE", help="run with this JSON Schema of the answer")
    add("--rate", type=per_second, metavar="N/s", help="replay at most N tasks a second")
    add(
        "--cap",
        type=up_to(MAX_NUMBER),
        metavar="N",
        help=f"skip tasks that were replayed N times ({CAP})",
    )
    add_consent(parser, dry_run="show counts and cost, change nothing")
    add("--resume", action="store_true", help="only follow unfinished replays")
    add("--list", action="store_true", help="show the latest replays and how far they are")
    add(
        "--from-topic",
        type=named,
        nargs="?",
        const=True,
        metavar="TOPIC",
        help="load dead letters back from a topic, for a lost ledger",
    )
    add("--force", action="store_true", help="for --from-topic: also load letters of this ledger")
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.replay:replay"))


def add_selection(parser: Parser) -> None:
    """Add the options that select dead letters."""
    add = parser.add_argument
    add(
        "--disposition",
        action="append",
        choices=DISPOSITIONS,
        metavar="D",
        help=f"why it died: {', '.join(DISPOSITIONS)}; may be repeated",
    )
    add(
        "--fingerprint",
        type=named,
        metavar="HEX",
        help="the error, as `dead list` shows it (6 digits suffice)",
    )
    add("--batch", type=named, metavar="NAME", help="tasks of this batch")
    add("--type", type=named, metavar="TYPE", help="tasks of this type")
    add("--tenant", type=named, metavar="NAME", help="tasks of this tenant")
    add(
        "--since",
        type=named,
        metavar="TIME",
        help="died since then: 2h, '3d ago', 2026-01-31T08:00Z",
    )
    add("--until", type=named, metavar="TIME", help="died before then")
    add("--id", type=named, metavar="ID", help="the task of this id, or the record quarantine:N")
    add("--limit", type=up_to(MAX_NUMBER), metavar="N", help="only the first N")
