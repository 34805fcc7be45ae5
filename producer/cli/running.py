"""Runs a command of `docllm` in an event loop; its errors become exit codes."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from dataclasses import replace

import uvloop

from docllm.producer.screen.output import fail, note
from docllm.producer.text.printable import (
    JsonFormatter,
    ShownFormatter,
    log_only_json,
    log_to_stderr,
    logs_json,
    shown_traceback,
)
from docllm.schemas.codes import Code
from docllm.schemas.errors import DocllmError
from docllm.schemas.runtime import outage
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.interpreter_watchdog import ended_when_frozen
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.runtime.starting import INTERRUPTED
from docllm.schemas.settings.sources import current_folder, early_json_log, load_config

log = logging.getLogger("docllm.producer")


def run(options: argparse.Namespace) -> int:
    """Run the command that the options name; return its exit code."""
    log_to_stderr(ShownFormatter("%(message)s", config_file=options.config), "WARNING")
    logging.getLogger(outage.__name__).setLevel(logging.INFO)  # also that a server answers again
    as_json = JsonFormatter({"group": getattr(options, "group", None)}, config_file=options.config)
    if early_json_log(os.environ):
        log_only_json(as_json)
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            # Let asyncio handle the interrupt.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        config = load_config(
            flags={"config": options.config}, environ=os.environ, cwd=current_folder()
        )
        if config.log_format == "json":
            log_only_json(as_json)
        config = replace(config, up_by_s=SystemClock().now_s() + options.wait)
        with (
            ended_when_frozen(),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            return int(runner.run(options.run(config, options)))
    except DocllmError as error:
        fail(options, with_config(str(error), options.config), code=error.code)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.flush()
        # Everything is closed. A thread may still wait for standard input, and would delay a normal
        # exit.
        os._exit(INTERRUPTED)
    except Exception as error:  # a bug of ours: shown whole, with its own exit code
        if logs_json():
            log.exception("internal error", extra={"code": Code.INTERNAL_ERROR})
        else:
            note(shown_traceback(error))
        return DocllmError.exit_code
