"""Runs a producer command in this process, in a folder whose embedded parts it uses."""

import asyncio
from pathlib import Path

from docllm.producer.cli.parser import parser
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import load_config


def config_of(folder: Path) -> Config:
    """Return the settings of a program that runs in a folder, without an environment."""
    return load_config(flags={}, environ={}, cwd=folder)


def run(folder: Path, *arguments: str) -> int:
    """Run a command; return its exit code. It raises its errors."""
    options = parser().parse_args(arguments)
    return int(asyncio.run(options.run(config_of(folder), options)))
