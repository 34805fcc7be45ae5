"""Options that several commands have. It imports no library and no command."""

from docllm.producer.cli.options.strict_parser import Parser


def add_json(parser: Parser, more: str = "") -> None:
    """Add `--json`; `more` continues its help."""
    parser.add_argument("--json", action="store_true", help=f"as JSON, for scripts{more}")


def add_consent(parser: Parser, *, dry_run: str) -> None:
    """Add `--dry-run` with this help, and `--yes`, of a command that asks before it begins."""
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
