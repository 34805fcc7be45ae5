"""`dead hooks`: lists the hooks that were given up, and has them run again."""

import argparse
from collections.abc import Sequence

from docllm.producer.app import SCREEN_S, opened_ledger
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger import hook_orders
from docllm.producer.ledger.hook_orders import GivenUp
from docllm.producer.screen.command_answer import CommandAnswer, answering
from docllm.producer.text.printable import shown
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.settings.config import Config
from docllm.schemas.task.hooks import HookEvent
from docllm.schemas.text.wording import number_of


async def given_up(config: Config, options: argparse.Namespace) -> int:
    """List the selected hooks that were given up; with --retry, order them anew."""
    event = None if options.event is None else HookEvent(options.event)
    with answering(options) as answer:
        async with opened_ledger(config, reads_s=SCREEN_S) as parts:
            transactions = parts.transactions
            kinds = await transactions.read(
                hook_orders.given_up_kinds, options.group, options.type, event
            )
            answer.put(hooks=[kind.as_json() for kind in kinds], retried=0)
            for kind in kinds:
                answer.say(f"{number_of(kind.count, 'hook')} {kind.name}: {shown(kind.failure)}")
            if options.retry:
                retried = 0
                for kind in kinds:
                    while ids := await transactions.read(
                        hook_orders.given_up_ids, options.group, kind
                    ):
                        retried += await transactions.write(
                            hook_orders.retry, options.group, kind, ids, actor()
                        )
                answer.put(retried=retried)
        _advise(options, kinds, answer)
    return 0


def _advise(options: argparse.Namespace, kinds: Sequence[GivenUp], answer: CommandAnswer) -> None:
    """Say what comes next."""
    if not kinds:
        answer.say(f"no hook of group {options.group} was given up")
    elif options.retry:
        advice = (
            "ordered again: an agent whose settings name them runs them within seconds; "
            f"to start one: docllm agent --group {options.group}"
        )
        answer.say(with_config(advice, options.config))
    else:
        advice = f"to run them again: docllm dead hooks --retry --group {options.group}"
        answer.say(with_config(advice, options.config))
