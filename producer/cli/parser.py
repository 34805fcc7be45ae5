"""The commands of `docllm`: their arguments, help and functions.

It imports no library and no command, so that `--help` and `--version` answer at once.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence

from docllm.producer.cli.options.arguments import (
    MAX_AGENTS,
    MAX_PARTITIONS,
    MAX_REPLICAS,
    add_wait,
    address,
    folder,
    group,
    named,
    seconds,
    up_to,
)
from docllm.producer.cli.options.dead import add_dead, add_replay, add_show
from docllm.producer.cli.options.load import add_load
from docllm.producer.cli.options.retention import add_erase, add_purge
from docllm.producer.cli.options.strict_parser import Imported, Parser, Subparsers, add_json

_GUARD = (
    "Show which batches are held back because nearly all their tasks failed, or let them run again."
)
_GUARD_LIST = "Show which batches are held back because nearly all their tasks failed, and why."
_GUARD_OPEN = "Let the tasks of a batch that is held back run again."
EXAMPLES = """\
examples:
  docllm load tasks.jsonl                    '-' is standard input
  docllm load --documents 'docs/*.txt' --prompt 'Sum up: {document}'
  docllm status                              --json for scripts
  docllm wait --batch tasks                  until it is done, for cron and CI
  docllm export --batch tasks results.csv    tables, JSON lines
  docllm cancel --batch tasks                end waiting tasks
  docllm dead list                           why tasks died
  docllm show ID                             what became of a task
  docllm replay --batch tasks --dry-run      what would run again
  docllm migrate                             prepare a database
  docllm topics apply                        prepare a Kafka cluster
  docllm check                               test all servers
  docllm exporter                            metrics for Prometheus
  docllm serve                               tasks and results over HTTP

exit codes: 0 done, 1 some input was bad, 2 usage, 3 a server cannot be reached,
            4 wrong schema or topics, 5 internal, 6 wait timed out, 26 frozen,
            130 interrupted
"""


def parser(argv: Sequence[str] = ()) -> Parser:
    """Return the parser of all commands; if the arguments name one, it knows no other."""
    whole = Parser(
        "docllm",
        description="Load tasks, show their state, export their results.",
        epilog=EXAMPLES,
    )
    whole.add_version()
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_commands(commands, argv[:1] if argv and argv[0] in COMMANDS else COMMANDS)
    return whole


def add_commands(
    parsers: "argparse._SubParsersAction[Parser]", names: Iterable[str] | None = None
) -> None:
    """Add these commands, by default all, to those of a parser."""
    shared = Parser(add_help=False)
    shared.add_argument(
        "--group", type=group, default="docllm", help="consumer group and topic prefix (docllm)"
    )
    shared.add_argument("--config", metavar="FILE", help="configuration file (docllm.toml)")
    add_wait(shared)
    commands = Subparsers(parsers, shared=shared)
    for name in COMMANDS if names is None else names:
        COMMANDS[name](commands)


def _add_status(commands: Subparsers) -> None:
    parser = commands.add(
        "status",
        "show counts, rate, agents, failures, why nothing runs",
        "Live on a terminal, plain in a pipe.",
    )
    parser.add_argument("--batch", type=named, metavar="NAME", help="only this batch")
    parser.add_argument("--archived", action="store_true", help="archived batches too")
    add_json(parser)
    parser.add_argument("--once", action="store_true", help="show it once, even on a terminal")
    on_terminal = "on a terminal, status shows each change anyway, until all tasks are final"
    parser.not_options = dict.fromkeys(("--watch", "--follow", "--live"), on_terminal)
    parser.set_defaults(run=Imported("docllm.producer.cli.status:status"))


def _add_wait(commands: Subparsers) -> None:
    parser = commands.add(
        "wait", "wait until a batch is done", "For cron and CI. It runs no tasks: agents do."
    )
    parser.add_argument(
        "--batch", type=named, required=True, metavar="NAME", help="the batch to wait for"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="TIME",
        help="wait no longer, such as 2h; the exit code is then 6",
    )
    parser.add_argument(
        "--fail-on-dead", action="store_true", help="exit code 1 if a task of the batch is dead"
    )
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.wait:wait"))


def _add_export(commands: Subparsers) -> None:
    parser = commands.add("export", "write the results", "In the order of loading, at any time.")
    add = parser.add_argument
    add(
        "output",
        nargs="?",
        metavar="FILE",
        help="file that appears when it is complete; '-' or none: stdout",
    )
    add("-o", dest="file", metavar="FILE", help="the same as FILE")
    add("--batch", type=named, metavar="NAME", help="only this batch (default: all of the group)")
    add(
        "--format",
        choices=["jsonl", "csv", "parquet", "openai"],
        help="by default what FILE's name ends with, else jsonl; openai: the batch API's "
        "output file",
    )
    add(
        "--flatten",
        action="store_true",
        help="a column result.NAME for each field of the results, 200 at most",
    )
    add("--bom", action="store_true", help="begin CSV with a byte order mark, for Excel")
    add("--id", type=named, metavar="ID", help="only this task")
    add(
        "--status",
        action="append",
        choices=["pending", "processing", "retrying", "succeeded", "dead", "cancelled"],
        metavar="STATE",
        help="only tasks in this state, such as dead; may be repeated",
    )
    add(
        "--only-new",
        action="store_true",
        help="only results that no earlier export with --only-new has written",
    )
    parser.set_defaults(run=Imported("docllm.producer.cli.export:export"))


def _add_cancel(commands: Subparsers) -> None:
    parser = commands.add(
        "cancel", "end a batch or a task that should not run", "Running tasks finish."
    )
    parser.add_argument(
        "--batch",
        type=named,
        metavar="NAME",
        help="the whole batch; nothing can be loaded into it afterwards",
    )
    parser.add_argument(
        "--id",
        type=named,
        metavar="ID",
        help="one task; add --batch if several batches have the id",
    )
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.cancel:cancel"))


def _add_archive(commands: Subparsers) -> None:
    parser = commands.add(
        "archive",
        "write a finished batch to a folder or object store",
        "Its files are read back before it counts as archived.",
    )
    parser.add_argument(
        "--batch", type=named, required=True, metavar="NAME", help="the batch; its tasks are final"
    )
    parser.add_argument(
        "--to",
        type=folder,
        metavar="DIR|URI",
        help="folder or s3:// prefix ([retention] archive)",
    )
    parser.add_argument(
        "--format", choices=["jsonl", "parquet"], default="jsonl", help="of the files (jsonl)"
    )
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.archive:archive"))


def _add_guard(commands: Subparsers) -> None:
    actions = commands.add_group("guard", "show or open batches that are held back", _GUARD)
    listed = actions.add("list", "show what is held back, and why", description=_GUARD_LIST)
    listed.add_argument("batch", nargs="?", type=named, metavar="BATCH", help="only this batch")
    add_json(listed)
    listed.set_defaults(run=Imported("docllm.producer.cli.guard:list_guards"))
    opened = actions.add("open", "let a batch run again", description=_GUARD_OPEN)
    opened.add_argument("batch", type=named, metavar="BATCH", help="the batch to let run again")
    opened.add_argument("--type", type=named, help="only its tasks of this type")
    opened.add_argument("--route", type=named, help="only its tasks of this route")
    add_json(opened)
    opened.set_defaults(run=Imported("docllm.producer.cli.guard:open_guards"))


def _add_exporter(commands: Subparsers) -> None:
    parser = commands.add(
        "exporter", "serve the group's metrics for Prometheus", "Until it is stopped."
    )
    parser.add_argument(
        "--listen",
        type=address,
        default=address("127.0.0.1:9465"),
        metavar="HOST:PORT",
        help="where to serve /metrics (127.0.0.1:9465); elsewhere DOCLLM_HTTP_TOKEN must be set",
    )
    parser.add_argument(
        "--min-agents",
        type=up_to(MAX_AGENTS, 0),
        default=0,
        metavar="N",
        help="for /scale: agents at least (0)",
    )
    parser.add_argument(
        "--max-agents",
        type=up_to(MAX_AGENTS),
        default=100,
        metavar="N",
        help="for /scale: agents at most (100)",
    )
    parser.add_argument(
        "--drain-target",
        type=seconds,
        default=600,
        metavar="TIME",
        help="for /scale: time in which waiting work should be done (10m)",
    )
    parser.set_defaults(run=Imported("docllm.producer.cli.exporter:exporter"))


def _add_serve(commands: Subparsers) -> None:
    parser = commands.add("serve", "take tasks and show results over HTTP", "Until it is stopped.")
    parser.add_argument(
        "--listen",
        type=address,
        default=address("127.0.0.1:8484"),
        metavar="HOST:PORT",
        help="where to serve (127.0.0.1:8484); elsewhere DOCLLM_HTTP_TOKEN must be set",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        type=named,
        metavar="NAME",
        help="name by which clients ask for the server; may be repeated",
    )
    parser.set_defaults(run=Imported("docllm.producer.cli.serve:serve"))


def _add_topics(commands: Subparsers) -> None:
    parser = commands.add("topics", "create, grow or compare the group's topics")
    parser.add_argument(
        "action",
        choices=["apply", "check"],
        help="apply: create and grow; check: print differences, then exit 4",
    )
    parser.add_argument(
        "--partitions",
        type=up_to(MAX_PARTITIONS),
        metavar="N",
        help="raise each topic to N partitions; by default none is raised, and a new group "
        "gets 12 (embedded 4)",
    )
    parser.add_argument(
        "--replication-factor",
        type=up_to(MAX_REPLICAS),
        metavar="N",
        help="copies of each partition (the broker's default)",
    )
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.admin:topics"))


def _add_migrate(commands: Subparsers) -> None:
    parser = commands.add("migrate", "update the ledger's schema to this version")
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.admin:migrate"))


def _add_check(commands: Subparsers) -> None:
    parser = commands.add(
        "check",
        "test servers, schema, topics, LLM",
        "Calls each LLM with a few tokens: once, unless it refuses.",
    )
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.admin:check"))


def _add_config(commands: Subparsers) -> None:
    parser = commands.add(
        "config",
        "show which settings are in force, and from where",
        "Shows the settings that are given, each with its file and line, variable or option. "
        "Secrets are dots.",
    )
    parser.add_argument("section", nargs="?", metavar="SECTION", help="such as llm or types.scan")
    parser.add_argument("--all", action="store_true", help="defaults too")
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.config:config"))


# In the order in which --help lists them.
COMMANDS: Mapping[str, Callable[[Subparsers], None]] = {
    "load": add_load,
    "status": _add_status,
    "wait": _add_wait,
    "show": add_show,
    "export": _add_export,
    "cancel": _add_cancel,
    "archive": _add_archive,
    "purge": add_purge,
    "erase": add_erase,
    "dead": add_dead,
    "replay": add_replay,
    "guard": _add_guard,
    "exporter": _add_exporter,
    "serve": _add_serve,
    "topics": _add_topics,
    "migrate": _add_migrate,
    "check": _add_check,
    "config": _add_config,
}
