"""The calls of one type of task on one route: prepared once, and made for many attempts.

A plan holds what is constant under one version of the settings. What a line or its batch gives is
passed to each call.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from docllm.agent.handlers.calls.cut_prompts import FEW, CountedCall, cut_text
from docllm.agent.handlers.calls.judging import Judged, judged
from docllm.agent.judge import JudgeFacts, Tier, outcome_of_failure
from docllm.agent.ports import Call, CallFailed, Reply, RouteClient
from docllm.agent.ports.outcome import Failure, Spent, Succeeded
from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.provider_headers import left
from docllm.schemas.runtime import crash
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass

if TYPE_CHECKING:  # they prepare the plans
    from docllm.agent.handlers.handler_run import Tools

_NAME_CHARS = 191


class CallMeasures(Protocol):
    """Takes what is measured of calls; the agent's metrics do."""

    def called(self, route: str, took_s: float) -> None:
        """Take the time of a call that ended, successful or not."""
        ...

    def left(self, route: str, amounts: Mapping[str, float]) -> None:
        """Take what is left of a provider's limits, by kind."""
        ...


@dataclass(slots=True, eq=False)
class CallsOf:
    """What the calls of one attempt are judged by.

    `counted_before` is how many attempts were counted before this one, of `max_attempts`, and
    `snoozes` how often in a row the task was snoozed. The attempt began when the clock showed
    `began_s`. `refused_alone`: the task met AUTH before, and its route has answered other calls
    since. `is_cut`: the server has cut the prompt of a call that was answered.
    """

    counted_before: int
    max_attempts: int
    snoozes: int
    began_s: float
    refused_alone: bool = False
    is_cut: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class CallPlan:
    """How calls of a type are made on a route; it is never changed."""

    task_type: str
    route: str
    client: RouteClient
    rules: TypeConfig
    tiers: Sequence[Tier]
    tools: "Tools"
    is_plain: bool = field(init=False)  # the type has no schema, time or `on_loss` of its own

    def __post_init__(self) -> None:
        rules = self.rules
        has_limit = rules.time_limit_s is not None or rules.soft_limit_s is not None
        runs_twice = rules.on_loss == "again"
        self.is_plain = rules.schema is None and not has_limit and runs_twice

    async def make(
        self,
        call: Call,
        attempt: CallsOf,
        *,
        model: str,
        schema: dict[str, Any] | None = None,
        verbatim: bool = False,
        note_killed: Callable[[Spent], None],
    ) -> tuple[Reply | CallFailed, Judged]:
        """Make a call; return its reply and what it means, with the cost of this call alone.

        `note_killed` is told the estimated cost of a call that is cancelled before its answer came.
        """
        tools = self.tools
        price = tools.prices.get(model) if tools.prices else None
        least_price_micro = 0 if price is None else price.least_price_micro(len(call.body))
        crash.reach("call.sending")
        began_s = tools.clock.now_s()
        try:
            reply = await self.client.llm.complete(call)
        except asyncio.CancelledError:
            if least_price_micro:
                note_killed(self._killed(call, attempt, model, least_price_micro))
            raise
        crash.reach("call.answered")
        now_s = tools.clock.now_s()
        if tools.measures is not None:
            tools.measures.called(self.route, now_s - began_s)
            if isinstance(reply, Reply) and (amounts := left(reply.headers)):
                tools.measures.left(self.route, amounts)
        facts = self.facts(attempt, now_s, model=model, request_id=call.request_id)
        facts.schema, facts.verbatim, facts.strict = schema, verbatim, self.rules.strict_answer
        facts.least_price_micro = least_price_micro
        outcome = await judged(reply, facts, tools.apart)
        if outcome.spent.tokens_in:
            outcome = self._of_whole_prompt(call, attempt, outcome, facts)
        if type(outcome) is Succeeded and outcome.oddities:
            tools.odd_answers.note(self.route, outcome.oddities)
        return reply, outcome

    def facts(
        self, attempt: CallsOf, now_s: float, *, model: str = "", request_id: str = ""
    ) -> JudgeFacts:
        """Return what the judge must know of an attempt, besides the answer."""
        return JudgeFacts(
            model=model,
            request_id=request_id,
            duration_ms=round((now_s - attempt.began_s) * 1000),
            counted_before=attempt.counted_before,
            max_attempts=attempt.max_attempts,
            snoozes=attempt.snoozes,
            refused_alone=attempt.refused_alone,
            tiers=self.tiers,
            jitter=self.tools.jitter(),
            utc_s=self.tools.clock.utc_s(),
            min_retry_s=self.rules.delay_s,
            prices=self.tools.prices,
            wordings=self.client.wordings,
        )

    def _of_whole_prompt(
        self, call: Call, attempt: CallsOf, outcome: Judged, facts: JudgeFacts
    ) -> Judged:
        """Return the outcome, as a failure if the server has cut the prompt and may not.

        Only whole prompts teach how many tokens a byte has.
        """
        spent, ratios, sent = outcome.spent, self.tools.token_ratios, call.body
        size = CallSize(task_type=self.task_type, input_bytes=len(sent))
        is_known_limit = spent.tokens_in in self.tools.cut_prompts.limits
        if not is_known_limit and ratios.learn(
            facts.model, size, spent.tokens_in, spent.tokens_out, few=FEW
        ):
            return outcome
        counted = CountedCall(
            self.route, facts.model, self.task_type, sent, spent.tokens_in, spent.tokens_cached
        )
        if not self.tools.cut_prompts.is_cut(counted, ratios):
            ratios.learn(facts.model, size, spent.tokens_in, spent.tokens_out)
            return outcome
        if not isinstance(outcome, Succeeded):
            return outcome
        if self.rules.whole_input:
            failure = Failure(ErrorClass.INPUT_CUT, cut_text(spent.tokens_in, sent))
            return outcome_of_failure(failure, spent, facts)
        attempt.is_cut = True
        return outcome

    def _killed(self, call: Call, attempt: CallsOf, model: str, least_price_micro: int) -> Spent:
        return Spent(
            model=model[:_NAME_CHARS],
            cost_micro=least_price_micro,
            call_id=call.request_id[:_NAME_CHARS],
            duration_ms=round((self.tools.clock.now_s() - attempt.began_s) * 1000),
            unsure_micro=least_price_micro,
            calls=1,
        )
