"""The arguments of `load`. It imports no library and no command."""

import argparse
from pathlib import Path

from docllm.producer.cli.options.arguments import (
    MAX_NUMBER,
    output_uri,
    route_names,
    tenant_name,
    time_or_delay,
    type_name,
    up_to,
    utf8_text,
)
from docllm.producer.cli.options.strict_parser import Imported, Parser, Subparsers, add_json
from docllm.producer.limits import MAX_REJECTS
from docllm.schemas.task.record.lanes import DEFAULT_PRIORITY


def add_load(commands: Subparsers) -> None:
    """Add `load`."""
    parser = commands.add(
        "load",
        "load tasks from a file, stdin or documents",
        "Loading it again loads the rest.",
    )
    add = parser.add_argument
    add(
        "file",
        nargs="?",
        metavar="FILE",
        help="task lines, OpenAI's lines, or a table; '-' for stdin",
    )
    add("--batch", metavar="NAME", help="name of the batch (the file's base name)")
    add(
        "--map",
        action="append",
        type=utf8_text,
        metavar="F=COLUMN",
        help="for a table: such as id=number,text=body,metadata.x=year",
    )
    add("--number-rows", action="store_true", help="for a table: its ids are row-1, row-2, ...")
    _add_documents(parser)
    add("--limit", type=up_to(MAX_NUMBER), metavar="N", help="load only the first N")
    add(
        "--max-backlog",
        type=up_to(MAX_NUMBER),
        metavar="N",
        help="wait while N or more tasks of the group are unfinished",
    )
    add("--strict", action="store_true", help="load nothing if a line is bad")
    _add_defaults(parser)
    add(
        "--max-rejects",
        type=up_to(MAX_NUMBER, least=0),
        default=MAX_REJECTS,
        metavar="N",
        help=f"stop when more than N lines are bad ({MAX_REJECTS:,}; 0: never)",
    )
    add("--dry-run", action="store_true", help="check and estimate, load nothing")
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.producer.cli.load.command:load"))


def _add_documents(parser: Parser) -> None:
    """Add what makes tasks of documents."""
    add = parser.add_argument
    add(
        "--documents",
        metavar="DIR|URI",
        help="one task per document of a folder, glob or s3:// URI",
    )
    add(
        "--prompt",
        type=utf8_text,
        metavar="TEXT",
        help="for documents, tables: the prompt with {document}",
    )
    add("--model", type=utf8_text, help="for documents, tables: the model")
    add(
        "--type",
        type=type_name,
        help="for documents, tables: the type, such as map-reduce",
    )
    add(
        "--schema",
        type=Path,
        metavar="FILE",
        help="for documents, tables: JSON Schema of the answer",
    )
    add(
        "--by-uri",
        action="store_true",
        help="for --documents: let the agent read every document",
    )
    add(
        "--convert",
        action="store_true",
        help="for --documents: put their text into the tasks",
    )
    # It takes the option of an alias or a script back.
    add("--no-convert", action="store_false", dest="convert", help=argparse.SUPPRESS)


def _add_defaults(parser: Parser) -> None:
    """Add what tasks may be, and what they are where their lines say nothing."""
    add = parser.add_argument
    add(
        "--allow-type",
        action="append",
        default=[],
        type=type_name,
        metavar="TYPE",
        help="accept this type, which only your agents know",
    )
    add(
        "--routes-allowed",
        type=route_names,
        metavar="A,B",
        help="routes that tasks may take, unless their lines say so",
    )
    add(
        "--tenant",
        type=tenant_name,
        metavar="NAME",
        help="tenant of lines that name none (default)",
    )
    add(
        "--priority",
        type=up_to(9, least=0),
        metavar="0-9",
        help=f"priority of lines that name none ({DEFAULT_PRIORITY})",
    )
    add(
        "--not-before",
        type=time_or_delay,
        metavar="TIME",
        help="when lines that name no time may run, such as +2h",
    )
    add(
        "--output-uri",
        type=output_uri,
        metavar="URI",
        help="where results go, such as s3://BUCKET/FOLDER/",
    )
    add(
        "--output-raw",
        action="store_true",
        help="the answers alone into the objects that lines name",
    )
