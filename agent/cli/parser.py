"""The commands of `docllm agent`: their arguments, help and functions.

It imports no library and no command, so that `--help` and `--version` answer at once.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from docllm.producer.cli.options.arguments import add_wait, group, up_to, utf8_text
from docllm.producer.cli.options.strict_parser import Imported, Parser, add_json, not_a_command
from docllm.schemas.runtime.next_command import as_called

_MAX_PROCESSES = 1000
_MAX_PORT = 65_535
_MAX_LIMIT = 1_000_000_000
_MINUTE_S = 60
_CHARGES = ("max_then_refund", "max_kept", "input_then_output")
COMMANDS = ("run", "reaper", "resume", "rehearsal-llm")
EXAMPLES = """\
examples:
  docllm agent --group docllm               run until told to stop (Ctrl-C)
  docllm agent --group docllm --until-done  end when every task is final
  docllm agent --until-done --rehearsal     without a provider, for a trial
  docllm agent --processes 4 --slots 200    four agents, 200 calls each
  docllm agent reaper --group docllm        only repair, take no tasks
  docllm agent resume ROUTE --group docllm  let a parked route take calls
  docllm agent rehearsal-llm --port 8000    an OpenAI-compatible server

exit codes: 0 done or drained, 1 a task is dead (--fail-on-dead), 2 usage,
            3 a server cannot be reached, 4 wrong schema or topics,
            5 internal, 26 frozen by a library, 130 forced by a third signal
"""


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line; their `run` is the command's function."""
    if argv[:1] == ["rehearsal-llm"]:
        return rehearsal_parser().parse_args(argv[1:])
    if argv[:1] == ["resume"]:
        return resume_parser().parse_args(argv[1:])
    parser = run_parser()
    options = parser.parse_args(argv)
    if options.fail_on_dead and not options.until_done:
        parser.error("--fail-on-dead needs --until-done")
    return options


def main(argv: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    options = parsed(argv)
    return int(options.run(options, argv))


def run_parser(*, add_help: bool = True) -> Parser:
    """Return the parser of agents and repair agents."""
    parser = Parser(
        "docllm agent",
        description="Take tasks from a group's topics, call the LLM, store the results.",
        epilog=EXAMPLES,
        add_help=add_help,
    )
    parser.add_argument("command", nargs="?", type=_command, default="run", help=argparse.SUPPRESS)
    parser.add_argument(
        "--group", type=group, default="docllm", help="consumer group and topic prefix (docllm)"
    )
    parser.add_argument("--slots", metavar="N", help="most calls in flight at once (64)")
    parser.add_argument(
        "--processes",
        type=up_to(_MAX_PROCESSES),
        metavar="N",
        help="run N agents as child processes; restart one that dies",
    )
    parser.add_argument(
        "--until-done", action="store_true", help="end when every task of the group is final"
    )
    parser.add_argument(
        "--fail-on-dead",
        action="store_true",
        help="with --until-done: exit code 1 if a task of the group is dead",
    )
    parser.add_argument(
        "--rehearsal", action="store_true", help="use the rehearsal LLM, in a child process"
    )
    parser.add_argument(
        "--rehearsal-options",
        default="",
        metavar="TEXT",
        help="its options, for example '--latency 1 --faults 429=0.05'",
    )
    _add_supervised(parser)
    parser.add_argument("--config", metavar="FILE", help="configuration file (docllm.toml)")
    add_wait(parser)
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="what to log (INFO)",
    )
    if add_help:
        parser.add_version()
    parser.set_defaults(run=Imported("docllm.agent.cli.main:run"))
    return parser


def _add_supervised(parser: Parser) -> None:
    """Add what a supervisor tells its agents."""
    # The agent's number.
    parser.add_argument("--child", type=up_to(_MAX_PROCESSES), help=argparse.SUPPRESS)
    # The descriptor for status words.
    parser.add_argument("--report", type=int, help=argparse.SUPPRESS)
    # The rehearsal LLM of all its agents.
    parser.add_argument("--rehearsal-url", help=argparse.SUPPRESS)


def resume_parser(*, add_help: bool = True) -> Parser:
    """Return the parser of `resume`."""
    parser = Parser(
        "docllm agent resume",
        description="Let a parked or stopped route take calls again at once, and record that in "
        "the table audit. It is not needed after a change of the settings file, which agents read "
        "again by themselves.",
        add_help=add_help,
    )
    parser.add_argument(
        "route",
        type=utf8_text,
        metavar="ROUTE",
        help="name of the route, as the log and status show it",
    )
    parser.add_argument(
        "--group",
        type=group,
        default="docllm",
        help="consumer group and topic prefix (docllm)",
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (docllm.toml)")
    add_wait(parser)
    add_json(parser)
    parser.set_defaults(run=Imported("docllm.agent.cli.resume:run"))
    return parser


def rehearsal_parser() -> Parser:
    """Return the parser of `rehearsal-llm`."""
    parser = Parser(
        "docllm agent rehearsal-llm",
        description="Serve an OpenAI-compatible API without a model.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port",
        type=_port,
        default=0,
        help="port to listen on (0: a free one; the first line shows it)",
    )
    parser.add_argument(
        "--latency",
        default="0.2",
        metavar="S|S-S",
        help="duration of a call in seconds, or a range (0.2)",
    )
    parser.add_argument(
        "--faults",
        default="",
        metavar="NAME=SHARE,...",
        help="429=0.05,hang=0.01,cut,malformed,wrong_schema,slow,quota,huge,retry_after=2",
    )
    _add_limits(parser)
    parser.add_argument(
        "--seed", type=int, default=1, help="with the same seed, the same call meets the same fault"
    )
    # It ends with the agent that started it.
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="append one JSON line per start and end of a call"
    )
    parser.set_defaults(run=Imported("docllm.agent.llm.rehearsal:serve"))
    return parser


def _add_limits(parser: Parser) -> None:
    """Add the limits that the rehearsal LLM enforces, as a provider does."""
    limit = up_to(_MAX_LIMIT)
    parser.add_argument("--rpm", type=limit, metavar="N", help="refuse more requests a minute")
    parser.add_argument("--tpm", type=limit, metavar="N", help="refuse more tokens a minute")
    parser.add_argument(
        "--itpm", type=limit, metavar="N", help="refuse more prompt tokens a minute"
    )
    parser.add_argument(
        "--otpm", type=limit, metavar="N", help="refuse more answer tokens a minute"
    )
    parser.add_argument("--in-flight", type=limit, metavar="N", help="refuse more calls at once")
    parser.add_argument(
        "--charge",
        default=_CHARGES[0],
        choices=_CHARGES,
        metavar="RULE",
        help=f"what counts toward limits of tokens: {', '.join(_CHARGES)}",
    )
    parser.add_argument(
        "--limit-window",
        type=up_to(_MINUTE_S),
        default=10,
        metavar="S",
        help="length of a burst, in seconds of the limits a minute (10)",
    )
    parser.add_argument(
        "--no-limit-headers",
        action="store_true",
        help="send no x-ratelimit headers and no Retry-After",
    )


def _command(text: str) -> str:
    """Return the command; refuse unknown ones, and commands that must come before all options."""
    if text in {"resume", "rehearsal-llm"}:
        raise argparse.ArgumentTypeError(
            as_called(f"{text} must come before all options: docllm agent {text} --help")
        )
    if text not in {"run", "reaper"}:
        raise argparse.ArgumentTypeError(not_a_command(text, COMMANDS))
    return text


def _port(text: str) -> int:
    """Return a port; raise the error that argparse shows.

    A larger number would silently be cut to another port.
    """
    if not (
        text.isascii()
        and text.isdecimal()
        and len(text) <= len(str(_MAX_PORT))
        and int(text) <= _MAX_PORT
    ):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to {_MAX_PORT}")
    return int(text)
