"""`replay --from-topic`: loads dead letters back after a ledger was lost."""

import argparse
from contextlib import nullcontext

from producer.app import make_reader, opened
from producer.cli.cancel import actor
from producer.cli.confirm import agreed, require_answer
from producer.relay.relay import Relay
from producer.replay.from_topic import Found, FromTopic, Loaded, survey
from producer.screen.output import bar, note, say
from schemas.errors import ConfigError
from schemas.settings.config import Config

REFUSED_SHOWN = 20


async def load(config: Config, options: argparse.Namespace) -> int:
    """Load a topic's dead letters into this ledger; return 1 if some cannot be loaded."""
    if not options.dry_run:
        require_answer(options)
    async with opened(config, options.group) as parts:
        topic = parts.topics.name("dlq") if options.from_topic is True else options.from_topic
        reader = make_reader(config, parts.clock)
        found = await survey(reader, topic, parts.ledger_id, options.disposition or ())
        _refuse_own(found, topic, options)
        say(
            f"{topic}: {found.letters} letters of {len(found.places) + len(found.left)} tasks or "
            "records"
        )
        if found.left:
            records = "quarantined records; --disposition undecodable or rejected takes them"
            say(
                f"left: {len(found.left)} "
                f"{'of other dispositions' if options.disposition else records}"
            )
        if not options.dry_run and not (
            found.places
            and await agreed(options, f"load {len(found.places)} into group {options.group}?")
        ):
            say("nothing is loaded")
            return 0
        relay = Relay(
            transactions=parts.transactions,
            publisher=parts.publisher,
            topics=parts.topics,
            clock=parts.clock,
        )
        with nullcontext() if options.dry_run else bar(f"loading {topic}") as shown:
            loader = FromTopic(
                transactions=parts.transactions,
                reader=reader,
                relay=None if options.dry_run else relay,
                group=options.group,
                max_attempts_of=config.max_attempts_of,
                progress=lambda done: shown.show(done, len(found.places)) if shown else None,
                actor=actor(),
            )
            return _tell(await loader.load(topic, found), options)


def _refuse_own(found: Found, topic: str, options: argparse.Namespace) -> None:
    if found.own and not options.force:
        raise ConfigError(
            f"{found.own} of {found.letters} letters in {topic} are of this ledger, which has their "
            "tasks; run replay without --from-topic, or add --force to load the others: tasks that "
            "are there stay as they are"
        )


def _tell(loaded: Loaded, options: argparse.Namespace) -> int:
    known = f", {loaded.known} were there already" if loaded.known else ""
    say(
        f"{loaded.new} tasks {'would be loaded: a dry run' if options.dry_run else 'loaded'}{known}"
    )
    for reason in loaded.refused[:REFUSED_SHOWN]:
        note(reason)
    if len(loaded.refused) > REFUSED_SHOWN:
        note(f"... and {len(loaded.refused) - REFUSED_SHOWN} more")
    if loaded.refused:
        say(f"{len(loaded.refused)} cannot be loaded")
    return 1 if loaded.refused else 0
