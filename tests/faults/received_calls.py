"""The calls that the LLM received, each with its seat and the LLM's intended fault."""

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from tests.faults.site import Site
from tests.invariants.evidence import Call

PROMPTS = "docllm-probe/"  # calls without a task, which probe a route


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call; `fault` is the one that the LLM was set to, `seat` the way it came."""

    call: Call
    fault: str | None
    seat: str


def received_calls(site: Site) -> list[ReceivedCall]:
    """Return every call of a task, by the times of their beginnings."""
    killed = {event["name"]: event["at_s"] for event in site.log.of("llm")}
    logs = (
        (site.deployment.folder / f"{llm.name}.jsonl", killed.get(llm.name)) for llm in site.llms
    )
    return sorted(
        (call for path, killed_s in logs for call in _calls(path, killed_s)),
        key=lambda received: received.call.start_s,
    )


def _calls(path: Path, killed_s: float | None) -> list[ReceivedCall]:
    """Return the calls of one log. A call in progress ended when the LLM was killed."""
    calls: list[ReceivedCall] = []
    running: dict[str, list[int]] = defaultdict(list)
    for line in path.read_bytes().splitlines():
        event = orjson.loads(line)
        name, _, label = event["id"].partition("#")
        if event["event"] == "start":
            running[event["id"]].append(len(calls))
            at_s = event["at_s"]
            number, _, again = label.partition(".")
            call = Call(
                name,
                at_s,
                killed_s,
                start_utc_s=at_s,
                label=int(number or 1),
                order=at_s,
                again=bool(again),
            )
            calls.append(ReceivedCall(call, None, event["path"].split("/")[1]))
        else:
            place = running[event["id"]].pop(0)
            done = replace(
                calls[place].call,
                end_s=event["at_s"],
                status=event["status"],
                sent_bytes=event["bytes"],
                tokens_in=event["tokens_in"],
                tokens_out=event["tokens_out"],
            )
            calls[place] = replace(calls[place], call=done, fault=event["fault"])
    return [received for received in calls if not received.call.name.startswith(PROMPTS)]
