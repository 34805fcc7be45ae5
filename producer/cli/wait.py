"""`wait`: returns when a batch is done, for cron and CI."""

import argparse
import shlex

from docllm.producer.app import opened_ledger
from docllm.producer.ledger.status.batch_wait import BatchProgress, wait_for_batch
from docllm.producer.ledger.store import half_loaded_message
from docllm.producer.screen.live import bar
from docllm.producer.screen.output import answering, note
from docllm.producer.text.printable import shown
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

DEAD = 1
TIMED_OUT = 6


async def wait(config: Config, options: argparse.Namespace) -> int:
    """Wait for the batch; return 0 if it is done, 6 if not, and 1 if dead tasks are to fail it."""
    was_told = False
    async with opened_ledger(config) as parts:
        with bar(f"waiting for {options.batch}", ticks=False) as shown_bar:

            def show(progress: BatchProgress) -> None:
                nonlocal was_told
                shown_bar.show(progress.total - progress.open, progress.total or None)
                if progress.loading and not progress.open and not was_told:
                    was_told = True
                    note(half_loaded_message(options.batch))

            progress = await wait_for_batch(
                parts.transactions,
                options.group,
                options.batch,
                clock=SystemClock(),
                timeout_s=options.timeout,
                show=show,
            )
    with answering(options) as answer:
        answer.say(
            with_config(_sentence(progress, options), options.config),
            batch=options.batch,
            done=progress.done,
            loading=progress.loading,
            replaying=progress.replaying,
            total=progress.total,
            open=progress.open,
            succeeded=progress.succeeded,
            dead=progress.dead,
            cancelled=progress.cancelled,
        )
    if not progress.done:
        return TIMED_OUT
    return DEAD if (progress.dead or progress.stopped) and options.fail_on_dead else 0


def _sentence(progress: BatchProgress, options: argparse.Namespace) -> str:
    """Return what became of the batch, with the command that tells more."""
    selected = f"--batch {shown(shlex.quote(options.batch))} --group {options.group}"
    counts = f"{progress.succeeded:,} succeeded, {progress.dead:,} dead"
    if progress.cancelled:
        counts += f", {progress.cancelled:,} cancelled"
    if progress.stopped:
        verb = "waits" if progress.stopped == 1 else "wait"
        counts += f", {progress.stopped:,} {verb} for a replay of dead tasks"
    if progress.done:
        end = f"batch {shown(options.batch)} is done: {counts}"
        return f"{end}; see: docllm dead list {selected}" if progress.dead else end
    tasks = f"{number_of(progress.open, 'task')} open, {counts}"
    unfinished = (", its load has not ended" if progress.loading else "") + (
        ", a replay has not ended" if progress.replaying else ""
    )
    return (
        f"batch {shown(options.batch)} is not done: {tasks}{unfinished}; "
        f"see: docllm status {selected}"
    )
