"""The arguments of commands that delete. It imports no library and no command."""

from docllm.producer.cli.options.arguments import named, per_second, tenant_name
from docllm.producer.cli.options.strict_parser import Imported, Subparsers, add_consent, add_json

_DEAD_TRIM = (
    "Delete the beginning of the topic of dead letters, up to the first letter of each partition "
    "that is neither archived nor replayed."
)
_NO_KEEP = "a purge deletes all rows; export the results first, or read them in the archive"


def add_purge(commands: Subparsers) -> None:
    """Add `purge`."""
    parser = commands.add(
        "purge",
        "delete the rows of archived batches",
        "In small steps beside running agents; the same command goes on after it was stopped.",
    )
    add = parser.add_argument
    add("--batch", type=named, metavar="NAME", help="this batch")
    add(
        "--older-than",
        type=named,
        metavar="TIME",
        help="archived batches without a change since then, such as 30d",
    )
    add("--rate", type=per_second, metavar="N/s", help="at most N tasks a second")
    add(
        "--unarchived",
        action="store_true",
        help="for --batch: even if no archive has it; what is deleted is lost",
    )
    add_consent(parser, dry_run="show what would go, delete nothing")
    add_json(parser)
    parser.not_options = {"--keep": _NO_KEEP}
    parser.set_defaults(run=Imported("docllm.producer.cli.purge:purge"))


def add_erase(commands: Subparsers) -> None:
    """Add `erase`."""
    parser = commands.add(
        "erase",
        "erase what is stored of a tenant or an id",
        "For requests by law. Counts stay; open tasks are cancelled.",
    )
    add = parser.add_argument
    add("--tenant", type=tenant_name, metavar="NAME", help="all tasks of this tenant")
    add("--id", type=named, metavar="ID", help="the tasks of this id, and what they ordered")
    add("--batch", type=named, metavar="NAME", help="only in this batch (all of the group)")
    add_consent(parser, dry_run="count, and say what cannot be reached")
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.erase:erase"))


def add_dead_trim(actions: Subparsers) -> None:
    """Add `trim` to the actions of `dead`."""
    parser = actions.add(
        "trim",
        "delete letters from their topic that were archived or replayed",
        description=_DEAD_TRIM,
    )
    add_consent(parser, dry_run="show it, delete nothing")
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.dead_trim:trim"))
