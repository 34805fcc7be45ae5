"""Runs what `docllm agent` was asked for: signals, exit codes, child processes.

`docllm.agent.app` builds what a command starts.
"""

import argparse
import asyncio
import logging
import os
import random
import resource
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from docllm.agent import app
from docllm.agent.agent import Agent
from docllm.agent.process import child_process, drain_watchdog
from docllm.agent.process.child_process import ParentPipe, Word
from docllm.agent.process.clock_jump import wait_for_backward_jump
from docllm.agent.process.containment import new_event_loop
from docllm.agent.process.signals import rereads, stops
from docllm.agent.process.stop_request import StoppedAtStart, StopRequest, starting
from docllm.agent.reporting.progress import Progress
from docllm.agent.reporting.telemetry import configure_logging, log_as_json
from docllm.agent.routes.clients import keys_in_clear
from docllm.producer.app import opened
from docllm.producer.text.printable import logs_json, shown_lines
from docllm.schemas.clients.llm_address import environment_proxies
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError, DocllmError, InputError, UnreachableError
from docllm.schemas.runtime import collector
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.interpreter_watchdog import ended_when_frozen
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.runtime.starting import INTERRUPTED
from docllm.schemas.settings.config import Config, LLMConfig
from docllm.schemas.settings.sources import (
    current_folder,
    early_json_log,
    load_config,
    require_llm,
)
from docllm.schemas.text.untrusted import is_interrupt

log = logging.getLogger("docllm.agent")  # the name that its log lines begin with

# Open files besides the calls' connections: ledger, bus, Kafka, documents and locks.
_OTHER_FILES = 256
_OF_TASKS = ("slots", "until_done", "fail_on_dead", "rehearsal")  # options that `reaper` refuses


def run(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run an agent, its parent process or a repair agent; return the exit code.

    `argv` is what the options were read from, for child processes.
    """
    configure_logging(options.log_level, options.child, options.config)
    as_json = partial(log_as_json, options.group, options.child, options.config)
    if early_json_log(os.environ):
        as_json()
    command = _run_repair_agent if options.command == "reaper" else _run
    try:
        config = load_config(flags=_flags(options), environ=os.environ, cwd=current_folder())
        config = replace(config, up_by_s=SystemClock().now_s() + options.wait)
        if config.log_format == "json":
            as_json()
        if options.processes and not options.child:
            return _supervise(config, options, argv)
        with ended_when_frozen():
            anew = _run_loop(command(config, options), options)
    except DocllmError as error:
        _complain(options, error)
        return _ended(options, error.exit_code)
    # A bug, or a handler that disturbed the event loop: the traceback is shown.
    except BaseException as error:
        if is_interrupt(error):
            raise
        log.exception("internal error", extra={"code": Code.INTERNAL_ERROR})
        return _ended(options, DocllmError.exit_code)
    if anew:
        # Run this program again, as it was started.
        again = child_process.program(*argv)
        os.execve(again[0], again, child_process.environment() or os.environ)  # noqa: S606
    return _ended(options, 0)


def _run_loop(command: Coroutine[Any, Any, bool], options: argparse.Namespace) -> bool:
    """Run a command in an event loop.

    Closing the loop waits for every thread that a handler started in it, so that wait is limited.
    """
    runner = asyncio.Runner(loop_factory=new_event_loop)
    code = DocllmError.exit_code
    try:
        anew = runner.run(command)
        code = 0
    except DocllmError as error:
        code = error.exit_code
        raise
    finally:
        leaving = drain_watchdog.leave_after(lambda: _ended(options, code))
        runner.close()
        leaving.cancel()
    return anew


def _ended(options: argparse.Namespace, code: int) -> int:
    """Return the exit code, and report to the parent that the agent itself chose it."""
    ParentPipe(options.report).say(Word.ENDED)
    return code


def _flags(options: argparse.Namespace) -> dict[str, object]:
    return {"agent.slots": options.slots, "config": options.config}


def _supervise(config: Config, options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run the agents as child processes.

    Faults that every child would report are reported once, here.
    """
    from docllm.agent.process.supervisor import Supervisor  # noqa: PLC0415 - an agent needs none
    from docllm.agent.reporting import group_watch  # noqa: PLC0415

    if options.command != "run":
        raise ConfigError("--processes is for agents; run `docllm agent reaper` without it")
    if not options.rehearsal:
        require_llm(config)
    # The rehearsal LLM inherits the limit and takes the calls of all agents.
    _allow_open_files(config.agent.slots * options.processes)
    clock = SystemClock()
    with (
        _llm_settings(config, options) as llm,
        group_watch.watch(
            clock=clock, group=options.group, priced=frozenset(config.prices)
        ) as watch,
    ):
        shared = ["--rehearsal-url", llm.base_url or ""] if options.rehearsal else []
        code = Supervisor(
            # Our arguments come first, because after a `--` in the user's arguments nothing is an
            # option.
            command=lambda number, report: child_process.program(
                "--child", str(number), "--report", str(report), *shared, *argv
            ),
            count=options.processes,
            until_done=options.until_done,
            clock=clock,
            jitter=random.random,
            watch=watch,
        ).run()
    watch.log_summary()
    return code


def _allow_open_files(calls: int) -> bool:
    """Raise this process's limit of open files for `calls` calls at once, if it may.

    Returns whether the limit suffices. Most systems begin with 1,024 and allow many more. A call
    that gets no file counts as a failure of its route.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least, most = (
        sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard)
    )
    needed = calls + _OTHER_FILES
    if least < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, most), hard))
    return needed <= most


async def _run(config: Config, options: argparse.Namespace) -> bool:
    """Run an agent; return whether it must start anew."""
    stop, reread = _signals(config.agent.drain_timeout_s + drain_watchdog.GRACE_S), asyncio.Event()
    _on_reread(reread.set)
    if not options.rehearsal:
        require_llm(config)
    if options.child:
        child_process.follow()
    if not _allow_open_files(config.agent.slots):
        log.warning(
            "%d slots need more open files than `ulimit -Hn` allows: raise it, or lower the slots",
            config.agent.slots,
            extra={"code": Code.FILES_TOO_FEW},
        )
    with (
        _llm_settings(config, options) as llm,
        _started_anew(config, stop) as anew,
        _stopped_at_start(),
    ):
        await _work(config, llm, options, stop, reread)
    # A stop signal during the drain hurries it and also prevents the restart.
    return anew.is_set() and not stop.hurry.is_set()


@contextmanager
def _stopped_at_start() -> Iterator[None]:
    """Let an agent end with 0 that was asked to stop before it began."""
    try:
        yield
    except StoppedAtStart:
        log.info("asked to stop before the agent began: nothing to drain")


@contextmanager
def _started_anew(config: Config, stop: StopRequest) -> Iterator[asyncio.Event]:
    """Let an agent on Kafka drain after a backward clock jump.

    The event is set if such a jump was the reason for the drain.
    """
    anew = asyncio.Event()

    async def watch() -> None:
        by_s = await wait_for_backward_jump(SystemClock())
        if not stop.asked.is_set():
            log.warning(
                "the clock was set back by %.0f s and the Kafka client would wait for that time: "
                "the agent drains and starts anew",
                by_s,
                extra={"code": Code.CLOCK_SET_BACK},
            )
            anew.set()
            stop.signal()

    watching = asyncio.create_task(watch()) if config.kafka.bootstrap else None
    try:
        yield anew
    finally:
        if watching is not None:
            watching.cancel()


async def _work(
    config: Config,
    llm: LLMConfig,
    options: argparse.Namespace,
    stop: StopRequest,
    reread: asyncio.Event,
) -> None:
    config = replace(config, llm=llm)
    load = partial(_load_again, options, llm, current_folder())
    async with AsyncExitStack() as closing:
        async with starting(stop):
            parts = await closing.enter_async_context(opened(config, options.group))
            log.info("%s", app.describe(parts))
            if options.child in {None, 1}:
                for warning in keys_in_clear(config, environment_proxies()):
                    log.warning("%s", warning, extra={"code": Code.KEY_IN_CLEAR})
            if options.rehearsal:
                log.warning(
                    "rehearsal LLM: the answers are extracts of the documents, no model is called"
                )
            report = ParentPipe(options.report)
            agent, progress = await closing.enter_async_context(
                app.registered_agent(
                    parts,
                    rehearsal=options.rehearsal,
                    load=load,
                    reread=reread,
                    tell=report.tell if options.child else None,
                    number=options.child or 1,
                )
            )
        await _run_agent(
            agent,
            progress,
            options,
            stop,
            report,
            drain_timeout_s=config.agent.drain_timeout_s,
        )


async def _run_agent(
    agent: Agent,
    progress: Progress,
    options: argparse.Namespace,
    stop: StopRequest,
    report: ParentPipe,
    *,
    drain_timeout_s: float,
) -> None:
    """Run an agent that was built until it has left, and log how its run ended."""
    await progress.begin()
    if options.until_done and not await agent.group_work.any_work():
        log.info("group %s has no tasks: nothing to do", options.group)
        await agent.membership.leave()
        report.say(Word.DONE)
        return
    report.say(Word.BEGAN)
    collector.calm()
    try:
        await agent.run(
            stop,
            until_done=options.until_done,
            drain_timeout_s=drain_timeout_s,
        )
    except UnreachableError as error:
        _give_up(options, error)
    for line in agent.counts.handler_errors.lines():
        log.info("%s", line)
    if options.until_done and not stop.asked.is_set():
        await progress.log_done(agent.group_work.notes)
        await _report_done(agent, options, report)
    elif options.child:
        await progress.end()
    else:
        await progress.log_stopped()


def _load_again(options: argparse.Namespace, llm: LLMConfig, folder: Path) -> Config:
    """Read the settings as at the start; a rehearsal keeps its own LLM."""
    config = load_config(flags=_flags(options), environ=os.environ, cwd=folder)
    if options.rehearsal:
        return replace(config, llm=llm)
    require_llm(config)
    return config


async def _report_done(agent: Agent, options: argparse.Namespace, report: ParentPipe) -> None:
    """Report that the work is done. Raises InputError if `--fail-on-dead` finds dead tasks."""
    dead = options.fail_on_dead and await agent.group_work.any_dead()
    report.say(Word.DONE)
    if dead:
        raise InputError(f"tasks of group {options.group} are dead; --fail-on-dead asks for none")


def _give_up(options: argparse.Namespace, error: UnreachableError) -> NoReturn:
    """End the process after a drain whose server does not answer.

    Threads that wait for the server must not keep the process beyond its grace period.
    """
    _complain(options, error)
    sys.stderr.flush()
    os._exit(error.exit_code)


def _complain(options: argparse.Namespace, error: DocllmError) -> None:
    if logs_json():
        log.error("%s", error, extra={"code": error.code})
        return
    who = f"agent {options.child}: " if options.child else ""
    sys.stderr.write(shown_lines(f"{who}error: {with_config(str(error), options.config)}") + "\n")


async def _run_repair_agent(config: Config, options: argparse.Namespace) -> bool:
    """Run a repair agent; return whether it must start anew."""
    if given := [f"--{name.replace('_', '-')}" for name in _OF_TASKS if getattr(options, name)]:
        raise ConfigError(
            f"`docllm agent reaper` takes no tasks; start it without {' and '.join(given)}"
        )
    stop = _signals(drain_watchdog.GRACE_S)
    _on_reread(partial(log.info, "`docllm agent reaper` reads its settings only when it starts"))
    with _started_anew(config, stop) as anew, _stopped_at_start():
        async with AsyncExitStack() as closing:
            async with starting(stop):
                parts = await closing.enter_async_context(opened(config, options.group))
                agent = await closing.enter_async_context(app.registered_repair_agent(parts))
            log.info("reaping for group %s", options.group)
            try:
                await agent.run(stop)
            except UnreachableError as error:
                _give_up(options, error)
    # A signal to leave during the drain hurries it, and then the agent does not restart.
    return anew.is_set() and not stop.hurry.is_set()


@contextmanager
def _llm_settings(config: Config, options: argparse.Namespace) -> Iterator[LLMConfig]:
    """Yield the LLM settings: the configured ones, or those of a rehearsal LLM.

    The rehearsal LLM is started unless a supervisor runs one already.
    """
    if not options.rehearsal:
        yield config.llm
    elif options.rehearsal_url:
        yield _rehearsed(config, options.rehearsal_url)
    else:
        from docllm.agent.llm.rehearsal.command import rehearsal_child  # noqa: PLC0415 - a trial

        with rehearsal_child(options.rehearsal_options) as url:
            yield _rehearsed(config, url)


def _rehearsed(config: Config, url: str) -> LLMConfig:
    return LLMConfig(base_url=url, model="rehearsal", timeout_s=config.llm.timeout_s)


def _signals(limit_s: float) -> StopRequest:
    """Install the signal handlers, and return the StopRequest that they act on.

    The first signal starts a drain, the second hurries it, and the third ends the process. A drain
    that takes longer than `limit_s` ends the process too.
    """
    loop = asyncio.get_running_loop()
    stop = StopRequest(lambda: drain_watchdog.end_after(limit_s, loop))

    def take() -> None:
        if stop.hurry.is_set():
            os._exit(INTERRUPTED)
        stop.signal()

    for number in stops():
        loop.add_signal_handler(number, take)
    return stop


def _on_reread(act: Callable[[], object]) -> None:
    """Act on the signals that ask to read the settings again."""
    for number in rereads():
        asyncio.get_running_loop().add_signal_handler(number, act)
