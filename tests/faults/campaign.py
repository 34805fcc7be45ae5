"""Plays stories side by side, as they mostly wait for leases and sessions of the dead."""

import os
import random
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.faults.installation import Installation
from tests.faults.stories import Story
from tests.integration.support.deployment import Deployment
from tests.integration.support.installations import embedded_in, group_on, prepare
from tests.servers import DatabaseServer, Kafka, Redis

SIDE_BY_SIDE = 8
# The shortest that a broker allows by default.
SESSION = '[kafka.client]\n"session.timeout.ms" = "6000"\n'
TIERS = {"DOCLLM_RETRY_TIERS": "1s"}


@dataclass(frozen=True, slots=True)
class Case:
    """One playing of a story.

    `number` counts from 0. Only the first playing dies at the first time of each point.
    """

    story: Story
    kafka: bool
    number: int

    def __str__(self) -> str:
        return f"{self.story.name}-{'kafka' if self.kafka else 'embedded'}-{self.number}"


class Campaign:
    """Plays cases in this order, started at once.

    Each `result` waits for its case, or plays it if it is not among them. The caller must ask for
    results in the same order, or wait for other cases too.
    """

    def __init__(
        self,
        cases: Iterable[Case],
        *,
        folder: Path,
        servers: tuple[Kafka, DatabaseServer, Redis] | None,
    ) -> None:
        self._folder = folder
        self._servers = servers
        self._open: list[Deployment] = []
        # Its threads live as long as the campaign, because a child dies with the thread that
        # started it.
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="installation")
        self._results: dict[Case, Future[None]] = {
            case: self._pool.submit(self._play, case) for case in cases
        }

    def result(self, case: Case) -> None:
        """Wait until the case has been played; raise its error."""
        (self._results.get(case) or self._pool.submit(self._play, case)).result()

    def close(self) -> None:
        """Play nothing more, and end every program."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for deployment in tuple(self._open):
            deployment.close()
        self._pool.shutdown()

    def _play(self, case: Case) -> None:
        seed = int(os.environ.get("DOCLLM_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
        deployment = self._deployment(case)
        # It picks moments.
        installation = Installation(deployment, chance=random.Random(seed), long=case.number > 0)  # noqa: S311
        try:
            if case.story.prepared and case.kafka:
                prepare(deployment)
            case.story.play(installation)
            assert set(installation.hit) == case.story.points_on(kafka=case.kafka), installation.hit
        except Exception as error:
            error.add_note(
                f"{case} after {installation.hit}; repeat its times with DOCLLM_TEST_SEED={seed}"
            )
            raise
        finally:
            deployment.close()

    def _deployment(self, case: Case) -> Deployment:
        folder = self._folder / str(case)
        deployment = (
            group_on(*self._servers, folder=folder)
            if case.kafka and self._servers
            else embedded_in(folder)
        )
        deployment.environ |= TIERS
        (folder / "docllm.toml").write_text(SESSION if case.kafka else "")
        self._open.append(deployment)
        return deployment
