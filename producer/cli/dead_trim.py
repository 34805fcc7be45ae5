"""`dead trim`: deletes dead letters that are no longer needed from their topic."""

import argparse

from docllm.producer.app import Parts, make_reader, opened
from docllm.producer.cli.cancel import actor
from docllm.producer.ledger import audit
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.retention.dead_trim import TrimPlan, plan_trim
from docllm.producer.screen.output import agreed, answering, require_answer
from docllm.producer.text.printable import shown
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime import crash
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of


async def trim(config: Config, options: argparse.Namespace) -> int:
    """Delete each partition up to the first letter that is neither archived nor replayed."""
    if not options.dry_run:
        require_answer(options)
    async with opened(config, options.group) as parts:
        topic = parts.topics.name("dlq")
        with answering(options) as answer:
            states = await parts.admin.describe([topic])
            plan = await plan_trim(
                parts.transactions,
                make_reader(config, parts.clock),
                group=options.group,
                ledger_id=parts.ledger_id,
                topic=topic,
                partitions=states[topic].partitions,
            )
            ends = [{"partition": part, "below": end} for part, end in sorted(plan.ends.items())]
            answer.say(
                f"{topic}: {number_of(plan.letters, 'letter')} at the beginning of "
                f"{number_of(len(ends), 'partition')} are archived or replayed",
                topic=topic,
                dry_run=options.dry_run,
                letters=plan.letters,
                partitions=ends,
                deleted=0,
            )
            for part, words in sorted(plan.needed.items()):
                answer.say(f"  partition {part} is kept from {shown(words)} on")
            question = (
                "delete them? A ledger that is lost cannot be rebuilt from them, only from its "
                "backup and archives"
            )
            if options.dry_run or not ends or not await agreed(options, question):
                answer.say("nothing is deleted")
                return 0
            await _trim(parts, topic, plan)
            answer.say(f"deleted {number_of(plan.letters, 'letter')}", deleted=plan.letters)
    return 0


async def _trim(parts: Parts, topic: str, plan: TrimPlan) -> None:
    def note(connection: Connection) -> None:
        audit.write(
            connection,
            group=parts.topics.group,
            actor=actor(),
            action="dead trim",
            kind=AuditKind.TOPIC,
            target=topic,
            detail=f"topic {topic}: {number_of(plan.letters, 'letter')} below {plan.ends}",
            items=plan.letters,
        )

    await parts.transactions.write(note)
    crash.reach("dead_trim.noted")
    await parts.admin.trim({(topic, part): end for part, end in plan.ends.items()})
