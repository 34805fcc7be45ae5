"""The whole main job: load, run, export; each task once, in the order of loading."""

import orjson

from tests.integration.support import checker
from tests.integration.support.deployment import BATCH, Deployment, task_line


def test_file_of_tasks_becomes_a_file_of_results(deployment: Deployment) -> None:
    """Every task succeeds with one call, and results come in the order of loading."""
    llm = deployment.llm("--latency", "0.02")
    deployment.load(300)

    (agent,) = deployment.until_done()
    lines = [
        orjson.loads(line) for line in deployment.producer("export", "--batch", BATCH).splitlines()
    ]

    assert [line["id"] for line in lines] == [f"t{number}" for number in range(300)]
    assert {line["status"] for line in lines} == {"succeeded"}
    assert all("small thing" in line["result"] for line in lines)
    assert len(llm.calls()) == 300
    assert checker.violations(deployment.evidence()) == []
    assert "300 succeeded" in agent.err


def test_same_file_loads_nothing_new(deployment: Deployment) -> None:
    """A second load of a file adds no task and no call, before or after the tasks ran."""
    llm = deployment.llm("--latency", "0")
    deployment.load(50)
    deployment.load(50)

    deployment.until_done()
    deployment.load(50)
    deployment.until_done()

    assert len(llm.calls()) == 50
    assert checker.violations(deployment.evidence()) == []


def test_both_formats_run_together(embedded: Deployment) -> None:
    """Lines of both formats run in one group; each exports in its own format."""
    embedded.llm("--latency", "0")
    ours = embedded.write_lines(
        [
            task_line(1),
            task_line(
                2,
                schema={
                    "type": "object",
                    "properties": {"title": {"type": "string"}},
                    "required": ["title"],
                },
            ),
        ]
    )
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Say a word about the small river."}],
    }
    theirs = embedded.write_lines(
        [{"custom_id": "c1", "method": "POST", "url": "/v1/chat/completions", "body": body}],
        "theirs",
    )
    embedded.producer("load", str(ours))
    embedded.producer("load", str(theirs))
    embedded.expect(BATCH, ["t1", "t2"])
    embedded.expect("theirs", ["c1"])

    embedded.until_done()
    own = [
        orjson.loads(line) for line in embedded.producer("export", "--batch", BATCH).splitlines()
    ]
    (openai,) = [
        orjson.loads(line)
        for line in embedded.producer(
            "export", "--batch", "theirs", "--format", "openai"
        ).splitlines()
    ]

    assert isinstance(own[0]["result"], str)
    assert isinstance(own[1]["result"]["title"], str)
    assert openai["custom_id"] == "c1"
    assert "river" in openai["response"]["body"]["choices"][0]["message"]["content"]
    assert checker.violations(embedded.evidence()) == []


def test_the_openai_format_has_the_providers_error(embedded: Deployment) -> None:
    """Tools that read OpenAI's output files find the status and what the error names."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    body = {"model": "m", "messages": [{"role": "user", "content": "p"}]}
    line = {"custom_id": "c1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    embedded.producer("load", str(embedded.write_lines([line], "refused")))
    embedded.until_done()

    exported = orjson.loads(embedded.producer("export", "--format", "openai"))

    assert (exported["error"], exported["response"]["status_code"]) == (None, 400)
    named = exported["response"]["body"]["error"]
    assert (named["type"], named["code"]) == ("invalid_request_error", "rehearsed_fault")
    assert named["param"] is None
