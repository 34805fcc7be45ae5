"""The commands of `python -m producer`: their arguments, help and functions.

It imports no library and no command, so that `--help` and `--version` answer at once.
"""

import argparse
from pathlib import Path

from producer.cli.arguments import (
    MAX_AGENTS,
    MAX_NUMBER,
    MAX_PARTITIONS,
    MAX_REPLICAS,
    address,
    folder,
    group,
    named,
    output_uri,
    per_second,
    route_names,
    seconds,
    tenant_name,
    type_name,
    up_to,
    written,
)
from producer.cli.parsing import Imported, Parser
from producer.cli.retention_options import add_dead_trim, add_erase, add_purge
from producer.ledger.dead_letters.selection import DISPOSITIONS
from producer.limits import CAP, MAX_REJECTS
from schemas.task.hooks import HookEvent
from schemas.task.lanes import DEFAULT_PRIORITY

_DEAD = "Show dead letters and quarantined records, and why their tasks died."
_DEAD_LIST = (
    "Show groups of one error and disposition: how many, since when, at what cost, and an example."
)
_DEAD_SHOW = (
    "Show everything about one task or record: state, attempts with error, call id and cost, "
    "dead letter, input."
)
_DEAD_HOOKS = (
    "Show the hooks that failed too often, and why. With --retry, agents run them again; their "
    "tasks stay as they are."
)
_DEAD_TRIM = (
    "Delete the beginning of the topic of dead letters, up to the first letter of each partition "
    "that is neither archived nor replayed."
)
_GUARD = (
    "Show which batches are held back because nearly all their tasks failed, or let them run again."
)
_GUARD_LIST = "Show which batches are held back because nearly all their tasks failed, and why."
_GUARD_OPEN = "Let the tasks of a batch that is held back run again."
EXAMPLES = """\
examples:
  python -m producer load tasks.jsonl                    '-' is standard input
  python -m producer load --documents 'docs/*.txt' --prompt 'Sum up: {document}'
  python -m producer status                              --json for scripts
  python -m producer export --batch tasks results.jsonl  --format openai
  python -m producer cancel --batch tasks                end waiting tasks
  python -m producer dead list                           why tasks died
  python -m producer replay --batch tasks --dry-run      what would run again
  python -m producer migrate                             prepare a database
  python -m producer topics apply                        prepare a Kafka cluster
  python -m producer check                               test all servers
  python -m producer exporter                            metrics for Prometheus

exit codes: 0 done, 1 some input was bad, 2 usage, 3 a server cannot be reached,
            4 wrong schema or topics, 5 internal, 130 interrupted
"""


def parser() -> Parser:
    """Return the parser of all commands."""
    whole = Parser(
        "python -m producer",
        description="Load tasks, show their state, export their results.",
        epilog=EXAMPLES,
    )
    whole.add_version()
    add_commands(whole.add_subparsers(dest="command", required=True, metavar="COMMAND"))
    return whole


def add_commands(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add all commands to those of a parser."""
    shared = Parser(add_help=False)
    shared.add_argument(
        "--group", type=group, default="docllm", help="consumer group and topic prefix (docllm)"
    )
    shared.add_argument("--config", metavar="FILE", help="configuration file (docllm.toml)")

    def command(name: str, text: str, more: str = "") -> Parser:
        described = f"{text[0].upper()}{text[1:]}. {more}".strip()
        added: Parser = commands.add_parser(
            name, parents=[shared], help=text, description=described
        )
        return added

    _add_load(
        command(
            "load",
            "load tasks from a file, stdin or documents",
            "Loading the same input again loads what is missing.",
        )
    )
    _add_status(
        command(
            "status",
            "show counts, rate, agents, failures, why nothing runs",
            "Live on a terminal, plain in a pipe.",
        )
    )
    _add_export(command("export", "write the results", "In the order of loading, at any time."))
    _add_cancel(
        command("cancel", "end a batch or a task that should not run", "Running tasks finish.")
    )
    _add_archive(
        command(
            "archive",
            "write a finished batch to a folder or object store",
            "Its files are read back before it counts as archived.",
        )
    )
    add_purge(
        command(
            "purge",
            "delete what is kept of archived batches",
            "In small steps beside running agents; the same command goes on after it was stopped.",
        )
    )
    add_erase(
        command(
            "erase",
            "erase what is stored of a tenant or an id",
            "For requests by law. Counts stay; open tasks are cancelled.",
        )
    )
    _add_dead(
        commands.add_parser(
            "dead", help="show dead letters, and why their tasks died", description=_DEAD
        ),
        shared,
    )
    _add_replay(
        command(
            "replay",
            "try dead letters again",
            "Agents apply a stored replay, even after this command ended.",
        )
    )
    _add_guard(
        commands.add_parser(
            "guard", help="show or open batches that are held back", description=_GUARD
        ),
        shared,
    )
    _add_exporter(
        command("exporter", "serve the group's metrics for Prometheus", "Until it is stopped.")
    )
    _add_topics(command("topics", "create, grow or compare the group's topics"))
    migrate = command("migrate", "update the ledger's schema to this version")
    _add_json(migrate)
    migrate.set_defaults(run=Imported("producer.cli.admin:migrate"))
    check = command(
        "check",
        "test servers, schema, topics, LLM",
        "Calls each LLM with a few tokens: once, unless it refuses.",
    )
    _add_json(check)
    check.set_defaults(run=Imported("producer.cli.admin:check"))


def _add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def _add_load(parser: Parser) -> None:
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="task lines of docllm or of the OpenAI batch API; '-' for stdin",
    )
    parser.add_argument("--batch", metavar="NAME", help="name of the batch (the file's base name)")
    parser.add_argument(
        "--documents",
        metavar="DIR|URI",
        help="one task per document of a folder, glob or s3:// URI",
    )
    parser.add_argument(
        "--prompt",
        type=written,
        metavar="TEXT",
        help="for --documents: the prompt; {document} is the text",
    )
    parser.add_argument("--model", type=written, help="for --documents: the model")
    parser.add_argument(
        "--type",
        type=type_name,
        help="for --documents: the type, such as map-reduce",
    )
    parser.add_argument(
        "--schema", type=Path, metavar="FILE", help="for --documents: JSON Schema of the answer"
    )
    parser.add_argument(
        "--by-uri",
        action="store_true",
        help="for --documents: let the agent read every document",
    )
    parser.add_argument(
        "--limit", type=up_to(MAX_NUMBER), metavar="N", help="load only the first N"
    )
    parser.add_argument(
        "--max-backlog",
        type=up_to(MAX_NUMBER),
        metavar="N",
        help="wait while N or more tasks of the group are unfinished",
    )
    parser.add_argument("--strict", action="store_true", help="load nothing if a line is bad")
    parser.add_argument(
        "--allow-type",
        action="append",
        default=[],
        type=type_name,
        metavar="TYPE",
        help="accept this type, which only your agents know; may be repeated",
    )
    parser.add_argument(
        "--routes-allowed",
        type=route_names,
        metavar="A,B",
        help="routes that tasks may take, unless their lines say so",
    )
    parser.add_argument(
        "--tenant",
        type=tenant_name,
        metavar="NAME",
        help="tenant of lines that name none (default)",
    )
    parser.add_argument(
        "--priority",
        type=up_to(9, least=0),
        metavar="0-9",
        help=f"priority of lines that name none ({DEFAULT_PRIORITY})",
    )
    parser.add_argument(
        "--output-uri",
        type=output_uri,
        metavar="URI",
        help="where results go, such as s3://BUCKET/FOLDER/",
    )
    parser.add_argument(
        "--max-rejects",
        type=up_to(MAX_NUMBER, least=0),
        default=MAX_REJECTS,
        metavar="N",
        help=f"stop when more than N lines are bad ({MAX_REJECTS:,}; 0: never)",
    )
    parser.add_argument("--dry-run", action="store_true", help="check and estimate, load nothing")
    _add_json(parser)
    parser.set_defaults(run=Imported("producer.cli.load:load"))


def _add_status(parser: Parser) -> None:
    parser.add_argument("--batch", type=named, metavar="NAME", help="only this batch")
    parser.add_argument("--archived", action="store_true", help="archived batches too")
    _add_json(parser)
    parser.add_argument("--once", action="store_true", help="show it once, even on a terminal")
    on_terminal = "on a terminal, status shows each change anyway, until all tasks are final"
    parser.not_options = dict.fromkeys(("--watch", "--follow", "--live"), on_terminal)
    parser.set_defaults(run=Imported("producer.cli.status:status"))


def _add_export(parser: Parser) -> None:
    parser.add_argument(
        "output",
        nargs="?",
        metavar="FILE",
        help="file that appears when it is complete; '-' or none: stdout",
    )
    parser.add_argument("-o", dest="file", metavar="FILE", help="the same as FILE")
    parser.add_argument(
        "--batch", type=named, metavar="NAME", help="only this batch (default: all of the group)"
    )
    parser.add_argument(
        "--format",
        choices=["docllm", "openai"],
        default="docllm",
        help="openai: the batch API's output file",
    )
    parser.set_defaults(run=Imported("producer.cli.export:export"))


def _add_cancel(parser: Parser) -> None:
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
    _add_json(parser)
    parser.set_defaults(run=Imported("producer.cli.cancel:cancel"))


def _add_archive(parser: Parser) -> None:
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
    parser.add_argument(
        "--adopt",
        action="store_true",
        help="after a restore: adopt the batch's newest existing archive, and end its open tasks",
    )
    _add_json(parser)
    parser.set_defaults(run=Imported("producer.cli.archive:archive"))


def _add_replay(parser: Parser) -> None:
    add = parser.add_argument
    add_selection(parser)
    add("--all", action="store_true", help="every dead letter of the group")
    add(
        "--cancelled",
        action="store_true",
        help="cancelled tasks instead; opens their batches again",
    )
    add("--dry-run", action="store_true", help="show counts and cost, change nothing")
    add("--rate", type=per_second, metavar="N/s", help="replay at most N tasks a second")
    add(
        "--cap",
        type=up_to(MAX_NUMBER),
        metavar="N",
        help=f"skip tasks that were replayed N times ({CAP})",
    )
    add("--yes", action="store_true", help="do not ask; needed without a terminal")
    add("--resume", action="store_true", help="only follow unfinished replays")
    add("--list", action="store_true", help="show the latest replays and how far they are")
    add(
        "--from-topic",
        type=named,
        nargs="?",
        const=True,
        metavar="TOPIC",
        help="load dead letters back from a topic (<group>.dlq), for a lost ledger",
    )
    add("--force", action="store_true", help="for --from-topic: also load letters of this ledger")
    _add_json(parser)
    parser.set_defaults(run=Imported("producer.cli.replay:replay"))


def _add_dead(parser: Parser, shared: Parser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "list",
        parents=[shared],
        help="show groups of one error, the largest first",
        description=_DEAD_LIST,
    )
    add_selection(listed)
    listed.add_argument("--json", action="store_true", help="as JSON, for scripts, with all groups")
    listed.set_defaults(run=Imported("producer.cli.dead:list_groups"))
    shown = actions.add_parser(
        "show",
        parents=[shared],
        help="show everything about one task or record",
        description=_DEAD_SHOW,
    )
    shown.add_argument(
        "id", type=named, metavar="ID", help="a task's id, or quarantine:N for a record"
    )
    shown.add_argument(
        "--batch", type=named, metavar="NAME", help="the batch, if several have the id"
    )
    shown.add_argument(
        "--json", action="store_true", help="as JSON, for scripts, with the whole input"
    )
    shown.set_defaults(run=Imported("producer.cli.dead:show"))
    hooks = actions.add_parser(
        "hooks",
        parents=[shared],
        help="show hooks that were given up, or have them run again",
        description=_DEAD_HOOKS,
    )
    hooks.add_argument("--type", type=named, metavar="TYPE", help="only those of this type")
    hooks.add_argument(
        "--event", choices=[str(event) for event in HookEvent], help="only those of on_EVENT"
    )
    hooks.add_argument("--retry", action="store_true", help="run them again, five times at most")
    _add_json(hooks)
    hooks.set_defaults(run=Imported("producer.cli.dead_hooks:given_up"))
    add_dead_trim(
        actions.add_parser(
            "trim",
            parents=[shared],
            help="delete letters from their topic that were archived or replayed",
            description=_DEAD_TRIM,
        )
    )


def _add_guard(parser: Parser, shared: Parser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listed = actions.add_parser(
        "list", parents=[shared], help="show what is held back, and why", description=_GUARD_LIST
    )
    listed.add_argument("batch", nargs="?", type=named, metavar="BATCH", help="only this batch")
    _add_json(listed)
    listed.set_defaults(run=Imported("producer.cli.guard:list_guards"))
    opened = actions.add_parser(
        "open", parents=[shared], help="let a batch run again", description=_GUARD_OPEN
    )
    opened.add_argument("batch", type=named, metavar="BATCH", help="the batch to let run again")
    opened.add_argument("--type", type=named, help="only its tasks of this type")
    opened.add_argument("--route", type=named, help="only its tasks of this route")
    _add_json(opened)
    opened.set_defaults(run=Imported("producer.cli.guard:open_guards"))


def _add_exporter(parser: Parser) -> None:
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
    parser.set_defaults(run=Imported("producer.cli.exporter:exporter"))


def _add_topics(parser: Parser) -> None:
    parser.add_argument(
        "action",
        choices=["apply", "check"],
        help="apply: create and grow; check: print differences, then exit 4",
    )
    parser.add_argument(
        "--partitions",
        type=up_to(MAX_PARTITIONS),
        metavar="N",
        help="partitions of each topic (12; embedded 4); never lowered",
    )
    parser.add_argument(
        "--replication-factor",
        type=up_to(MAX_REPLICAS),
        metavar="N",
        help="copies of each partition (the broker's default)",
    )
    _add_json(parser)
    parser.set_defaults(run=Imported("producer.cli.admin:topics"))


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
        help="the error, as `dead list` shows it; its first 6 digits suffice",
    )
    add("--batch", type=named, metavar="NAME", help="tasks of this batch")
    add("--type", type=named, metavar="TYPE", help="tasks of this type")
    add("--tenant", type=named, metavar="NAME", help="tasks of this tenant")
    add(
        "--since",
        type=named,
        metavar="TIME",
        help="died since then: 2h, '3d ago', 2026-01-31, 2026-01-31T08:00Z",
    )
    add("--until", type=named, metavar="TIME", help="died before then")
    add("--id", type=named, metavar="ID", help="the task of this id, or the record quarantine:N")
    add("--limit", type=up_to(MAX_NUMBER), metavar="N", help="only the first N")
