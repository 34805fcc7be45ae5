"""Features, each in use by tasks that wait while plain tasks run beside them.

The waiting tasks call a server that never answers, or their handler never ends, so that most of
them wait for their turn and none ends while the plain tasks are counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

HANDLERS = """
import asyncio


async def wait(context):
    await asyncio.sleep(36000)


async def lock(context):
    async with context.lock("one"):
        await asyncio.sleep(36000)


async def give_up(context):
    from docllm import GiveUpError
    raise GiveUpError("the document is no invoice")


async def join(context):
    key = context.task.key
    if "/" in key:
        await asyncio.sleep(36000)
    await context.follow({"id": f"{key}/1", "type": context.task.type})
    await context.follow({"id": f"{key}/all", "type": context.task.type}, after="children")


async def ended(context, outcome):
    pass
"""
_SILENT = """
[routes.{name}]
base_url = "{silent}"
model = "{name}"
timeout_s = 36000
in_flight = 2
"""
_HANDLER = """
[types.{name}]
slots = 2
handler = "waiting_handlers:{handler}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Settings, and what the lines of its waiting tasks have beside an id, a prompt and a text.

    `{name}` stands for a name of its own, so that one agent can have all features, `{silent}` for
    the address of a server that never answers, and `{folder}` for the installation's folder: in
    settings its path, in lines its URI.
    """

    settings: str
    line: Mapping[str, Any]


def _by_route(settings: str = "", **line: object) -> Feature:
    """Return a feature whose tasks call a server that never answers, two at once."""
    return Feature(settings=_SILENT + settings, line={"route": "{name}", **line})


def _by_handler(handler: str, settings: str = "") -> Feature:
    """Return a feature of a type with a handler and two slots."""
    text = _HANDLER.replace("{handler}", handler) + settings
    return Feature(settings=text, line={"type": "{name}"})


def features() -> Mapping[str, Feature]:
    """Return the features by what is in use."""
    later = datetime.now(UTC) + timedelta(hours=12)
    hours = f"{later:%H}:00-{later:%H}:59 UTC"
    return {
        "another route and its limit": _by_route(),
        "a route that is closed": Feature(
            settings='\n[routes.{name}]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "{name}"\n',
            line={"route": "{name}"},
        ),
        "requests and tokens a minute": _by_route("rpm = 60\ntpm = 100000\n"),
        "wordings": _by_route('wordings = { RATE = ["slow down"] }\n'),
        "another model": _by_route(model="{name}-other"),
        "a fallback": _by_route(
            'fallback = ["{name}-spare"]\n\n[routes.{name}-spare]\nmodel = "{name}-spare"\n'
        ),
        "a tenant and its limit": _by_route("\n[tenants.{name}]\nin_flight = 1\n", tenant="{name}"),
        "the urgent lane": _by_route(priority=9),
        "schemas": _by_route(schema={"type": "object", "required": ["total"]}),
        "prices": _by_route('\n[prices."{name}"]\ninput_per_mtok = 1\n'),
        "outputs": _by_route(output_uri="{folder}/results/"),
        "documents by URI": _by_route(input={"uri": "{folder}/document.txt"}),
        "deadlines": _by_route(deadline="2100-01-01T00:00:00Z"),
        "map-reduce": _by_route(type="map-reduce"),
        "a type's slots": _by_handler("wait"),
        "a type's time limits": _by_handler("wait", "soft_limit_s = 30000\ntime_limit_s = 36000\n"),
        "a type's hours": _by_handler("wait", f'schedule = "{hours}"\n'),
        "hooks": _by_handler("wait", 'on_success = "waiting_handlers:ended"\n'),
        "what must not run twice": _by_handler("wait", 'on_loss = "dead"\n'),
        "locks": _by_handler("lock"),
        "joins": _by_handler("join"),
        "handlers in processes": _by_handler("wait", 'run = "process"\n'),
        "a guard": _by_handler("give_up"),
        "traces": _by_route('\n[otel]\nendpoint = "{silent}"\nratio = 0\n'),
        "retention": _by_route('\n[retention]\narchive = "{folder}/archive"\n'),
    }
