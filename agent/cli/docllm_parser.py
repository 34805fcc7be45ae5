"""The parser of `docllm`: both programs' commands, the demo, and shell completion.

It imports no library and no command, so that `--help` and `--version` answer at once.
"""

from docllm.agent.cli.parser import resume_parser, run_parser
from docllm.producer.cli.options.strict_parser import Imported, Parser
from docllm.producer.cli.parser import add_commands

# Commands and options that neither program's own parser has.
PROVIDERS = ("openai", "azure", "openrouter", "vllm", "ollama", "llama.cpp")  # of init
STORIES = ("kill", "outage", "poison", "stop")  # of the demo, which loads more than a parser needs
OWN = ("init", "demo", "completion", "--help", "-h", "--version")
SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
examples:
  docllm load --documents 'docs/*.txt' --prompt 'Sum up: {document}'
  docllm agent --until-done                   run what is loaded
  docllm export results.jsonl                 the results, in order of loading
Exit codes: 0 done, 1 bad input, 2 usage, 3 server away, 4 wrong state, 5 bug
"""


def docllm_parser() -> Parser:
    """Return the parser of all commands of `docllm`."""
    whole = Parser(
        "docllm",
        description="Run LLM tasks over documents, at scale, and lose none.",
        epilog=EXAMPLES,
    )
    whole.add_version()
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_commands(commands)
    commands.add_parser(
        "agent", parents=[run_parser(add_help=False)], help="run the tasks: call the LLM"
    )
    commands.add_parser(
        "resume", parents=[resume_parser(add_help=False)], help="let a parked route take calls"
    )
    demo = commands.add_parser(
        "demo",
        help="summarize documents of this machine, as a trial",
        description="Summarize the modules of Python's standard library: load them, run an agent, "
        "export the results into a new folder. The rehearsal LLM answers, with extracts.",
    )
    add_demo_options(demo)
    init = commands.add_parser(
        "init",
        help="write a docllm.toml for a provider",
        description="Write a commented docllm.toml with the settings that people change first. It "
        "holds no key, and no existing file is replaced.",
    )
    init.add_argument(
        "provider",
        nargs="?",
        default=PROVIDERS[0],
        choices=PROVIDERS,
        metavar="PROVIDER",
        help=f"{', '.join(PROVIDERS[:-1])} or {PROVIDERS[-1]} ({PROVIDERS[0]})",
    )
    init.add_argument("-o", "--output", default="docllm.toml", metavar="FILE", help="the file")
    init.set_defaults(run=Imported("docllm.agent.cli.init:run"))
    completion = commands.add_parser(
        "completion",
        help="print the completion code of a shell",
        description="Print the code that completes docllm's commands and options in a shell. "
        'For bash and zsh: eval "$(docllm completion bash)"; '
        "for fish: docllm completion fish | source.",
    )
    completion.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")
    completion.set_defaults(run=Imported("docllm.agent.cli.completion:run"))
    return whole


def add_demo_options(parser: Parser) -> None:
    """Add the options of the demo."""
    parser.add_argument(
        "--provider",
        action="store_true",
        help="ask the provider that the environment names, which costs money",
    )
    parser.add_argument(
        "--story",
        choices=STORIES,
        default=STORIES[0],
        help="what goes wrong: an agent is killed (default), the provider fails, a document kills "
        "agents, an agent is stopped",
    )
    parser.set_defaults(run=Imported("docllm.agent.cli.demo:run"))
