"""Completion in bash, zsh and fish: the code for a shell, and the answers to a shell."""

import argparse
import sys

from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from docllm.agent.cli.docllm_parser import docllm_parser


def run(options: argparse.Namespace) -> int:
    """Print the code that lets a shell ask `docllm` for completions."""
    sys.stdout.write(shellcode(["docllm"], shell=options.shell) + "\n")
    return 0


def complete() -> None:
    """Print completions for the calling shell and exit.

    argcomplete reads the request from the environment.
    """
    CompletionFinder()(docllm_parser())
