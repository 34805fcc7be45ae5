"""Every crash point is hit on both kinds of parts, and the checker finds nothing.

The kinds are the embedded parts, and Kafka with MariaDB.
"""

import os
from collections.abc import Iterator

import pytest

from tests.faults.campaign import Campaign, Case
from tests.faults.stories import STORIES

TIMES = int(os.environ.get("DOCLLM_TEST_CRASHES") or 1)
# The longest first.
CASES = [
    Case(story, kafka, number)
    for kafka in (True, False)
    for number in range(TIMES)
    for story in STORIES
]


@pytest.fixture(scope="session")
def campaign(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Campaign]:
    """The playing of all cases that this test run has chosen.

    If tests are distributed to processes, cases are played one after another.
    """
    chosen: list[Case] = [
        item.callspec.params["case"]  # type: ignore[attr-defined]
        for item in request.session.items
        if "campaign" in getattr(item, "fixturenames", ())
    ]
    servers = None
    if any(case.kafka for case in chosen):
        kafka, database, redis = (
            request.getfixturevalue(f"{name}_server") for name in ("kafka", "database", "redis")
        )
        servers = (kafka, database, redis)
    at_once = [] if "PYTEST_XDIST_WORKER" in os.environ else chosen
    campaign = Campaign(at_once, folder=tmp_path_factory.mktemp("crashes"), servers=servers)
    yield campaign
    campaign.close()


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_death_at_its_points_changes_nothing(campaign: Campaign, case: Case) -> None:
    """Programs die at each point of a story, and every task still ends once.

    New programs go on after each death.
    """
    campaign.result(case)
