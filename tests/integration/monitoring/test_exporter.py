"""`exporter`: the metrics of a group as whole programs give them, on both sets of parts."""

import signal
from collections import Counter
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import make_url

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import Program, until
from tests.servers import DatabaseServer
from tests.servers.process import free_port


def started(
    deployment: Deployment, program_name: str = "producer", **environ: str
) -> tuple[Program, str]:
    """Start an exporter on a free port; return it and its address."""
    program = deployment.start(
        program_name, "exporter", "--group", deployment.group, "--listen", "127.0.0.1:0", **environ
    )
    until(lambda: "/metrics" in program.err or not program.running, "the exporter to listen")
    assert program.running, program.err
    return program, next(word for word in program.err.split() if word.endswith("/metrics"))[:-8]


def page(url: str, token: str = "") -> tuple[int, str]:
    request = Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our own
    try:
        with urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, ""


def samples(text: str) -> Counter[tuple[str, ...]]:
    """Return each sample by its name and the values of its labels, in the order of their names."""
    return Counter(
        {
            (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


@repeated_on_embedded
def test_the_metrics_are_what_the_ledger_says(deployment: Deployment) -> None:
    """Every task, attempt and token of a batch with failures is in the sums."""
    deployment.llm("--latency", "0", "--faults", "400=0.1")
    deployment.load(60)
    deployment.until_done()

    program, url = started(deployment)
    until(lambda: page(f"{url}/readyz")[0] == HTTPStatus.OK, "the first reading")
    found = samples(page(f"{url}/metrics")[1])

    counts, group = deployment.ledger.counts(), deployment.group
    assert counts["dead"]
    assert {state: found["docllm_tasks", group, state] for state in counts} == counts
    assert found["docllm_tasks_loaded_total", group] == 60
    assert found["docllm_tasks_open", group] == 0
    assert found["docllm_tasks_dead_total", "BAD_REQUEST", "permanent", group] == counts["dead"]
    batch = next(one for one in deployment.status()["batches"] if one["name"] == BATCH)
    for direction in ("in", "out"):
        tokens = found["docllm_tokens_total", direction, group, "default"]
        assert tokens == batch[f"tokens_{direction}"] > 0
    assert found["docllm_topic_lag_records", group, "tasks"] == 0
    status, answer = page(f"{url}/api/v1/groups/{group}/scale")
    assert status == HTTPStatus.OK
    scaled = orjson.loads(answer)
    assert (scaled["version"], scaled["desired_agents"], scaled["because"]) == (1, 0, "idle")
    assert scaled["partitions"] > 0
    assert found["docllm_agents_desired_bound", "idle", group] == 1
    deployment.load(30, "more")
    until(
        lambda: orjson.loads(page(f"{url}/api/v1/groups/{group}/scale")[1])["desired_agents"] == 1,
        "the first agent to be asked for",
    )
    program.signal(signal.SIGTERM)
    assert program.wait() == 0


def test_it_serves_while_its_ledger_is_away(embedded: Deployment) -> None:
    """The exporter waits for its database, its metrics say so, and it ends at once when asked."""
    port = free_port()
    program, url = started(
        embedded,
        DOCLLM_KAFKA_BOOTSTRAP=f"127.0.0.1:{port}",
        DOCLLM_DATABASE_URL=f"mysql://docllm:secret@127.0.0.1:{port}/docllm",
    )

    until(lambda: "the ledger does not answer" in program.err, "the log to name the outage")
    assert f"127.0.0.1:{port}" in program.err
    assert "secret" not in program.err
    assert samples(page(f"{url}/metrics")[1])["docllm_ledger_up", embedded.group] == 0
    assert page(f"{url}/livez")[0] == HTTPStatus.OK
    assert page(f"{url}/readyz")[0] == HTTPStatus.SERVICE_UNAVAILABLE
    scale = page(f"{url}/api/v1/groups/{embedded.group}/scale")
    assert scale[0] == HTTPStatus.SERVICE_UNAVAILABLE
    program.signal(signal.SIGTERM)
    assert program.wait() == 0


def test_it_serves_before_the_schema_is_there(
    on_kafka: Deployment, database_server: DatabaseServer
) -> None:
    """Started beside `migrate`, it waits for it, and its log says what is missing."""
    database = database_server.create_database("unmigrated")
    program, url = started(
        on_kafka, "tests.integration.monitoring.fast_exporter", DOCLLM_DATABASE_URL=database
    )

    until(lambda: "run: docllm migrate" in program.err, "the log to name the cause")
    assert samples(page(f"{url}/metrics")[1])["docllm_ledger_up", on_kafka.group] == 0
    on_kafka.run("producer", "migrate", DOCLLM_DATABASE_URL=database)

    until(lambda: page(f"{url}/readyz")[0] == HTTPStatus.OK, "the first reading")
    assert samples(page(f"{url}/metrics")[1])["docllm_ledger_up", on_kafka.group] == 1


def test_a_login_that_the_database_refuses_ends_it(on_kafka: Deployment) -> None:
    """Waiting does not help against wrong settings."""
    url = make_url(on_kafka.environ["DOCLLM_DATABASE_URL"]).set(password="wrong")  # noqa: S106

    done = on_kafka.run(
        *("producer", "exporter", "--group", on_kafka.group, "--listen", "127.0.0.1:0"),
        DOCLLM_DATABASE_URL=url.render_as_string(hide_password=False),
    )

    assert done.code == 3, done
    assert "refuses the connection" in done.err


def test_other_machines_need_a_token(embedded: Deployment) -> None:
    """Without one, the program does not start; the error says what to set."""
    refused = embedded.run(
        "producer", "exporter", "--group", embedded.group, "--listen", "0.0.0.0:0"
    )
    assert refused.code == 2
    assert "DOCLLM_HTTP_TOKEN" in refused.err

    _, url = started(embedded, DOCLLM_HTTP_TOKEN="tok")  # noqa: S106 - of this test
    assert page(f"{url}/metrics")[0] == HTTPStatus.UNAUTHORIZED
    assert page(f"{url}/metrics", "tok")[0] == HTTPStatus.OK
    assert page(f"{url}/livez")[0] == HTTPStatus.OK


@pytest.mark.parametrize("listen", ["9465", "127.0.0.1:70000", "a b:1"])
def test_a_wrong_address_is_a_usage_error(embedded: Deployment, listen: str) -> None:
    """The error shows the right form."""
    done = embedded.run("producer", "exporter", "--listen", listen)
    assert done.code == 2
    assert "HOST:PORT" in done.err


def test_bounds_that_contradict_each_other_are_a_usage_error(embedded: Deployment) -> None:
    """The least number of agents is not above the most."""
    done = embedded.run("producer", "exporter", "--min-agents", "5", "--max-agents", "2")
    assert done.code == 2
    assert "--min-agents is above --max-agents" in done.err
