"""`dead export`: writes the task lines of dead tasks, to edit them and load them."""

import argparse
import sys

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.export import STDOUT, output_file
from docllm.producer.cli.selection_options import read_selection
from docllm.producer.replay import changes
from docllm.producer.screen.output import note
from docllm.producer.text.printable import escaped
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of


async def export(config: Config, options: argparse.Namespace) -> int:
    """Write the lines of the selected tasks to stdout, or to a file as a whole."""
    output = None if options.file in STDOUT else options.file
    async with opened_ledger(config, reads_s=SCREEN_S) as parts:
        selection = await parts.transactions.read(read_selection, options)
        read = parts.transactions.database.run_singly
        lines = changes.lines(read, options.group, selection)
        if output is None and sys.stdout.isatty():
            lines = (escaped(line.decode()).encode() for line in lines)
        with output_file(output) as file:

            def write() -> int:
                count = 0
                for line in lines:
                    file.write(line + b"\n")
                    count += 1
                return count

            count = await parts.transactions.executor(write)
    if output is not None:
        note(f"{number_of(count, 'line')} written to {output}")
        advice = "edit them, then: docllm load FILE --batch ANOTHER"
        note(with_config(f"{advice} --group {options.group}", options.config))
    return 0
