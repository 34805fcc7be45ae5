"""What `status` makes of a reaper."""

import asyncio
from pathlib import Path

from agent.app import reaping
from producer import status
from producer.app import opened
from producer.status import GroupStatus
from schemas.settings import load_config


def test_a_reaper_that_runs_is_known_as_one(tmp_path: Path) -> None:
    """It beats as an agent does, but takes no task: without another one nothing would run."""

    async def seen() -> GroupStatus:
        config = load_config(flags={}, environ={}, cwd=tmp_path)
        async with opened(config, "g") as parts, reaping(parts) as reaper:
            found = parts.database.auto(lambda c: status.read(c, "g"))
            await reaper._leave()
        return found

    (reaper,) = asyncio.run(seen()).agents

    assert (reaper.state, reaper.works) == ("alive", False)
    assert reaper.name.endswith(" (reaper)")
