"""`replay --from-topic`: loads dead letters back after a ledger was lost."""

import argparse
from contextlib import nullcontext
from functools import partial

from docllm.producer.app import make_reader, make_relay, opened
from docllm.producer.cli.cancel import actor
from docllm.producer.replay.from_topic import FromTopic, LoadedLetters, TopicSurvey, survey_topic
from docllm.producer.screen.live import bar
from docllm.producer.screen.output import CommandAnswer, agreed, note, require_answer
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.claim_time import limit_of
from docllm.schemas.settings.config import Config
from docllm.schemas.text.wording import number_of

REFUSED_SHOWN = 20


async def load(config: Config, options: argparse.Namespace, answer: CommandAnswer) -> int:
    """Load a topic's dead letters into this ledger; return 1 if some cannot be loaded."""
    if not options.dry_run:
        require_answer(options)
    async with opened(config, options.group) as parts:
        topic = parts.topics.name("dlq") if options.from_topic is True else options.from_topic
        reader = make_reader(config, parts.clock)
        survey = await survey_topic(reader, topic, parts.ledger_id, options.disposition or ())
        _refuse_own(survey, topic, options)
        subjects = len(survey.positions) + len(survey.left)
        answer.say(
            f"{topic}: {survey.letters} letters of {subjects} tasks or records",
            topic=topic,
            dry_run=options.dry_run,
            letters=survey.letters,
            new=0,
            known=0,
            left=len(survey.left),
            refused=[],
        )
        if survey.left:
            records = "quarantined records; --disposition undecodable or rejected takes them"
            kind = "of other dispositions" if options.disposition else records
            answer.say(f"left: {len(survey.left)} {kind}")
        question = f"load {len(survey.positions)} into group {options.group}?"
        if not options.dry_run and not (survey.positions and await agreed(options, question)):
            answer.say("nothing is loaded")
            return 0
        with nullcontext() if options.dry_run else bar(f"loading {topic}") as progress:
            loader = FromTopic(
                transactions=parts.transactions,
                reader=reader,
                relay=None if options.dry_run else make_relay(parts),
                group=options.group,
                max_attempts_of=config.max_attempts_of,
                limit_of=partial(limit_of, config),
                progress=lambda done: (
                    progress.show(done, len(survey.positions)) if progress else None
                ),
                actor=actor(),
            )
            return _report_load(await loader.load(topic, survey), options, answer)


def _refuse_own(survey: TopicSurvey, topic: str, options: argparse.Namespace) -> None:
    if survey.own and not options.force:
        raise ConfigError(
            f"{survey.own} of {survey.letters} letters in {topic} are of this ledger, "
            "which has their "
            "tasks; run replay without --from-topic, or add --force to load the others: tasks that "
            "are there stay as they are"
        )


def _report_load(loaded: LoadedLetters, options: argparse.Namespace, answer: CommandAnswer) -> int:
    already_loaded = f", {loaded.known} loaded already" if loaded.known else ""
    done = "would be loaded: a dry run" if options.dry_run else "loaded"
    answer.say(
        f"{number_of(loaded.new, 'task')} {done}{already_loaded}",
        new=loaded.new,
        known=loaded.known,
        refused=loaded.refused,
    )
    if loaded.over_limit:
        note(
            f"{number_of(loaded.over_limit, 'letter')} with a longer time_limit_s than its type "
            "allows now; agents take the smaller one"
        )
    for reason in loaded.refused[:REFUSED_SHOWN]:
        note(reason)
    if len(loaded.refused) > REFUSED_SHOWN:
        note(f"... and {len(loaded.refused) - REFUSED_SHOWN} more")
    if loaded.refused:
        answer.say(f"{len(loaded.refused)} cannot be loaded")
    return 1 if loaded.refused else 0
