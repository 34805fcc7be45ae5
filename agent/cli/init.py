"""`docllm init`: writes a commented docllm.toml for a provider."""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from docllm.schemas.runtime.next_command import as_called

_KEY = "DOCLLM_LLM_API_KEY"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: its lines of the section `[llm]`, and the variable of its key, if any."""

    llm: str
    key: str = _KEY


_SERVER = """\
base_url = "{address}"  # of the server, up to but not including /chat/completions
model = "{model}"  # for tasks that name none
"""
_CUTS = """\
context_tokens = 4096  # as the server is set; it cuts longer prompts and says nothing
"""
PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider('model = "gpt-4o-mini"  # for tasks that name none\n', "OPENAI_API_KEY"),
    "azure": Provider(
        'base_url = "https://NAME.openai.azure.com/openai/deployments/MODEL'
        '?api-version=2024-10-21"\n'
        'model = "MODEL"\n'
        '# headers = { "api-key" = "..." }  # if the deployment takes no bearer token\n'
    ),
    "openrouter": Provider(
        _SERVER.format(address="https://openrouter.ai/api/v1", model="openai/gpt-4o-mini")
    ),
    "vllm": Provider(
        _SERVER.format(
            address="http://localhost:8000/v1", model="meta-llama/Llama-3.3-70B-Instruct"
        ),
        "",
    ),
    "ollama": Provider(
        _SERVER.format(address="http://localhost:11434/v1", model="llama3.2") + _CUTS, ""
    ),
    "llama.cpp": Provider(_SERVER.format(address="http://localhost:8080/v1", model="any"), ""),
}

_REST = """\
timeout_s = 600  # of one whole call
# rpm = 500  # the provider's limit of requests a minute, kept by all agents together
# tpm = 200000  # of tokens a minute

[agent]
slots = 64  # attempts that run at once in one agent

# [prices."MODEL"]  # of a million tokens; without it costs are unknown
# input_per_mtok = 0.15
# output_per_mtok = 0.60

# Without these two, everything is in the folder docllm-data, for agents of one machine.
# [kafka]
# bootstrap = "localhost:9092"
# [database]
# url = "mysql://USER:PASSWORD@HOST:3306/docllm"
"""


def text_for(name: str) -> str:
    """Return the file for a provider."""
    provider = PROVIDERS[name]
    key = f"# The key is in the variable {provider.key}.\n" if provider.key else ""
    about = "# Settings of docllm. All of them: docs/reference/settings.md\n\n"
    return f"{about}{key}[llm]\n{provider.llm}{_REST}"


def run(options: argparse.Namespace) -> int:
    """Write the file and print what to do next; return the exit code."""
    path = Path(options.output)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text_for(options.provider))
    except FileExistsError:
        sys.stderr.write(f"error: {path} exists; move it, or write another file with -o FILE\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {path} cannot be written: {error.strerror}; name one with -o\n")
        return 2
    key, config = PROVIDERS[options.provider].key, f" --config {shlex.quote(str(path))}"
    steps = [f"export {key}=..."] if key else []
    steps += [as_called(f"docllm check{config}"), as_called(f"docllm agent{config} --until-done")]
    sys.stdout.write(f"{path} written; read it, then:\n" + "".join(f"  {s}\n" for s in steps))
    return 0
