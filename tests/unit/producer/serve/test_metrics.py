"""The server shows the metrics of its group, so that nobody needs an exporter beside it."""

from pathlib import Path

from tests.support.serving import served


def test_a_server_shows_the_metrics_of_its_group(tmp_path: Path) -> None:
    """The pages are those of the exporter, and as fresh as the request needs."""
    with served(tmp_path) as client:
        client.post("/v1/tasks?batch=B", b'{"id":"a","prompt":"x"}')

        metrics = client.get("/metrics")
        scale = client.get("/api/v1/groups/docllm/scale")

        assert metrics.status == 200
        assert 'docllm_tasks{group="docllm",state="pending"} 1.0' in metrics.body.decode()
        assert (scale.status, scale.json["desired_agents"]) == (200, 1)
        assert client.get("/readyz").status == 200
        assert client.get("/api/v1/groups/other/scale").status == 404
