"""The manifests in `deploy/kubernetes`, as kustomize renders them.

They fit the published schemas of Kubernetes, KEDA and the Prometheus operator
(`tests/kubernetes/crds.json`: the schemas of KEDA 2.21.0 and of the operator 0.85.0, without their
descriptions), and they agree with the code. No cluster runs them here.
"""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import orjson
import pytest
import yaml

from docllm.agent.cli.parser import run_parser
from docllm.agent.documents.address import is_public
from docllm.agent.reporting.health import Health
from docllm.agent.reporting.latest_report import LatestReport
from docllm.agent.reporting.metrics import AgentMetrics
from docllm.producer.cli.parser import parser
from docllm.producer.metrics.exporter import Exporter
from docllm.producer.metrics.scale import ScaleLimits
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.sources import load_config
from tests.servers import kustomize
from tests.servers.process import ServerMissingError
from tests.support import autoscaler
from tests.support.clock import HandClock
from tests.support.leaving import LEAVING_S
from tests.support.slots import OneLease

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/kubernetes"
# The oldest and the newest version that is supported by its makers.
KUBERNETES = ("1.35", "1.37")
PROGRAMS = ("agent", "exporter", "migrate", "replay", "topics")
# Where clouds give their credentials: AWS and most others, ECS, Alibaba, Azure, Oracle.
CREDENTIALS = (
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
)
KEYS = {"DOCLLM_LLM_API_KEY", "OPENAI_API_KEY"}

Manifest = dict[str, Any]


@cache
def rendered(name: str) -> list[Manifest]:
    """Return the manifests of a folder."""
    try:
        command = kustomize.command()
    except ServerMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    done = subprocess.run([*command, FOLDER / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def all_manifests() -> Iterator[Manifest]:
    for name in ("base", "setup", "replay", "example"):
        yield from rendered(name)


def of_kind(kind: str, name: str = "example") -> list[Manifest]:
    return [manifest for manifest in rendered(name) if manifest["kind"] == kind]


def one(kind: str, resource: str, folder: str = "example") -> Manifest:
    return next(
        manifest for manifest in of_kind(kind, folder) if manifest["metadata"]["name"] == resource
    )


def job_of_replay() -> Manifest:
    """Return the Job that the CronJob makes at its time, and `create job --from` at once."""
    template = one("CronJob", "docllm-replay", "replay")["spec"]["jobTemplate"]
    metadata = template["metadata"] | {"name": "docllm-replay-1", "namespace": "docllm"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}


def pods() -> dict[str, Manifest]:
    """Return the pod of each container, by the container's name."""
    found = {}
    for manifest in (*rendered("example"), *rendered("setup"), job_of_replay()):
        spec = manifest.get("spec", {}).get("template", {}).get("spec", {})
        for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
            found[container["name"]] = spec
    return found


def container(name: str) -> Manifest:
    pod = pods()[name]
    containers = (*pod.get("initContainers", ()), *pod["containers"])
    return next(each for each in containers if each["name"] == name)


def secrets() -> dict[str, dict[str, str]]:
    text = (FOLDER / "secrets.example.yaml").read_text()
    return {each["metadata"]["name"]: each["stringData"] for each in yaml.safe_load_all(text)}


def environment(name: str) -> dict[str, str]:
    """Return the variables of a container, with the values of the example's Secrets."""
    given, values = container(name), secrets()
    found = {each["name"]: each["value"] for each in given["env"]}
    for source in given["envFrom"]:
        found |= values[source["secretRef"]["name"]]
    return found


def settings() -> str:
    return str(one("ConfigMap", "docllm-settings")["data"]["docllm.toml"])


def strict(schema: Any) -> Any:
    """Return a schema that also refuses names which it does not have."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(part) for name, part in schema.items()}
    is_object = isinstance(closed.get("properties"), dict) and closed.get("type") == "object"
    return closed | {"additionalProperties": False} if is_object else closed


@cache
def custom_schemas() -> dict[str, Any]:
    schemas = orjson.loads((ROOT / "tests/kubernetes/crds.json").read_bytes())
    return {name: strict(schema) for name, schema in schemas.items()}


def faults(manifest: Manifest) -> list[str]:
    """Return what is wrong with a manifest by its published schema."""
    kind = f"{manifest['apiVersion']} {manifest['kind']}"
    if kind in custom_schemas():
        validator = jsonschema_rs.validator_for(custom_schemas()[kind])
        return [f"{kind}: {error.message}" for error in validator.iter_errors(manifest)]
    found = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{kind}: {error.message}")
    return found


def test_the_manifests_fit_the_published_schemas() -> None:
    """Every manifest has the form that Kubernetes, KEDA or the operator demands."""
    manifests = [*all_manifests(), job_of_replay()]
    assert [fault for manifest in manifests for fault in faults(manifest)] == []


def test_a_wrong_name_in_a_manifest_is_found() -> None:
    """The schemas are strict: a misspelt name is no silent default."""
    agents, scaled = one("Deployment", "docllm-agents"), one("ScaledObject", "docllm-agents")
    assert faults(agents | {"spec": agents["spec"] | {"replica": 2}})
    assert faults(scaled | {"spec": scaled["spec"] | {"maxReplicas": 2}})


def test_the_alerts_fit_into_a_rule_of_the_operator() -> None:
    """The command of the page makes a PrometheusRule of the rules file, as it stands."""
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    found = re.search(r"^(\{ printf .*?\}) \| kubectl apply", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    made = subprocess.run(
        ["sh", "-c", found[1]], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    rule = yaml.safe_load(made)
    assert faults(rule) == []
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/docllm.rules.yml").read_text())


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_understand_their_arguments_and_variables(name: str, tmp_path: Path) -> None:
    """Every option and variable in a manifest exists."""
    program, *arguments = container(name)["args"]
    (run_parser() if program == "agent" else parser()).parse_args(arguments)
    file = tmp_path / "docllm.toml"
    file.write_text(settings())

    config = load_config(
        flags={}, environ=environment(name) | {"DOCLLM_CONFIG": str(file)}, cwd=tmp_path
    )

    assert config.kafka.bootstrap == tomllib.loads(settings())["kafka"]["bootstrap"]
    assert config.database_url is not None
    assert config.redis_url is not None


def test_a_replay_asks_nobody_and_no_second_one_begins() -> None:
    """It has no terminal; agents finish it if its pod is killed, so no pod tries it again."""
    options = parser().parse_args(container("replay")["args"][1:])
    cron, job = one("CronJob", "docllm-replay", "replay")["spec"], job_of_replay()["spec"]
    assert options.yes
    assert options.cap
    assert cron["concurrencyPolicy"] == "Forbid"
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    assert "create job docllm-replay-1 --from=cronjob/docllm-replay" in page


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_settings_file_is_where_the_programs_look(name: str) -> None:
    """The file is mounted read-only, by the folder, so that a new version appears in it."""
    mounts = {mount["name"]: mount for mount in container(name)["volumeMounts"]}
    assert environment(name)["DOCLLM_CONFIG"] == f"{mounts['settings']['mountPath']}/docllm.toml"
    assert "subPath" not in mounts["settings"]
    assert mounts["settings"]["readOnly"] is True


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_no_more_rights_than_they_need(name: str) -> None:
    """The namespace enforces the standard `restricted`, and the root folder cannot be written."""
    pod, own = pods()[name], container(name)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    folders = {mount["mountPath"] for mount in own["volumeMounts"]}
    assert folders >= {"/data", "/tmp"}  # noqa: S108 - a mount of its own
    assert own["resources"]["requests"].keys() >= {"cpu", "memory"}
    assert own["resources"]["limits"]["memory"]
    labels = one("Namespace", "docllm")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_user_and_the_group_are_those_of_the_image() -> None:
    """The image's user owns the folders, and its group those of mounted volumes."""
    file = (ROOT / "Dockerfile").read_text()
    numbers = re.search(r"^USER (\d+):(\d+)$", file, re.MULTILINE)
    assert numbers is not None
    user, group = map(int, numbers.groups())
    assert f"groupadd --gid {group} docllm && useradd --uid {user} --gid {group} " in file
    wanted = {"runAsUser": user, "runAsGroup": group, "fsGroup": group}
    for pod in pods().values():
        assert wanted.items() <= pod["securityContext"].items()


def test_secrets_are_applied_by_hand_and_keys_go_to_the_agents_alone() -> None:
    """No kustomization has a Secret, and only agents get the keys of providers."""
    assert [each for each in all_manifests() if each["kind"] == "Secret"] == []
    assert {name for name in PROGRAMS if KEYS & environment(name).keys()} == {"agent"}


def test_agents_have_time_to_drain() -> None:
    """Kubernetes kills an agent only after its drain and the time to leave."""
    drain_s = tomllib.loads(settings())["agent"]["drain_timeout_s"]
    assert pods()["agent"]["terminationGracePeriodSeconds"] > drain_s + LEAVING_S
    assert f"plus {LEAVING_S:.0f} s." in (ROOT / "docs/how-to/kubernetes.md").read_text()


def test_agents_leave_some_at_a_time() -> None:
    """A node can always be drained, and a new version starts no agent beside all the old ones."""
    assert one("PodDisruptionBudget", "docllm-agents")["spec"]["maxUnavailable"] == "25%"
    for folder in ("base", "example"):
        strategy = one("Deployment", "docllm-agents", folder)["spec"]["strategy"]
        assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "25%"}


def pages(name: str) -> set[str]:
    """Return the paths that a program serves."""
    clock = HandClock()
    if name == "agent":
        health = Health(
            beats=lambda: True, leases=OneLease(), latest=LatestReport(clock=clock), clock=clock
        )
        metrics = AgentMetrics(group="docllm", routes=[], counters=[], gauges=[])
        return set(health.pages(metrics))
    exporter = Exporter(
        group="docllm", config=Config(), scale_limits=ScaleLimits(), clock=clock, schema="0"
    )
    return set(exporter.pages)


@pytest.mark.parametrize("name", ["agent", "exporter"])
def test_probes_ask_pages_that_need_no_token(name: str) -> None:
    """The probes' paths exist, on the port on which the program listens on every address."""
    own = container(name)
    (port,) = own["ports"]
    listens = (
        environment(name).get("DOCLLM_AGENT_HTTP") or own["args"][own["args"].index("--listen") + 1]
    )
    assert listens == f"0.0.0.0:{port['containerPort']}"
    assert "DOCLLM_HTTP_TOKEN" in environment(name)
    asked = {
        probe: (own[probe]["httpGet"]["path"], own[probe]["httpGet"]["port"])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert asked == {
        "startupProbe": ("/livez", port["name"]),
        "livenessProbe": ("/livez", port["name"]),
        "readinessProbe": ("/readyz", port["name"]),
    }
    assert {"/livez", "/readyz", "/metrics"} <= pages(name)


def test_keda_asks_the_exporter() -> None:
    """The address is that of the Service and the page, and the token that of the exporter."""
    scaled, service = (
        one("ScaledObject", "docllm-agents")["spec"],
        one("Service", "docllm-exporter"),
    )
    (trigger,) = scaled["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    (port,) = service["spec"]["ports"]
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
    assert (url.hostname, url.port) == (host, port["port"])
    assert url.path in pages("exporter")
    assert trigger["metricType"] == "AverageValue"  # with another one, a fallback does not hold
    assert trigger["metadata"]["targetValue"] == "1"
    login = one("TriggerAuthentication", trigger["authenticationRef"]["name"])
    (reference,) = login["spec"]["secretTargetRef"]
    assert reference["parameter"] == "token"
    assert reference["key"] in secrets()[reference["name"]]
    assert scaled["scaleTargetRef"]["name"] == "docllm-agents"
    assert "replicas" not in one("Deployment", "docllm-agents")["spec"]


def test_keda_and_the_exporter_have_the_same_bounds() -> None:
    """Else KEDA would cut a number whose reason says something else."""
    scaled = one("ScaledObject", "docllm-agents")["spec"]
    options = parser().parse_args(container("exporter")["args"][1:])
    topics = parser().parse_args(container("topics")["args"][1:])
    assert options.min_agents == scaled["minReplicaCount"]
    assert options.max_agents == scaled["maxReplicaCount"] == topics.partitions


def test_the_rules_are_those_that_the_model_was_tried_with() -> None:
    """What the property tests of `/scale` show holds for these numbers."""
    scaled = one("ScaledObject", "docllm-agents")["spec"]
    behaviour = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    more, less = behaviour["scaleUp"], behaviour["scaleDown"]
    assert scaled["cooldownPeriod"] == autoscaler.COOLDOWN_S
    assert more["stabilizationWindowSeconds"] == autoscaler.MORE_WINDOW_S
    assert less["stabilizationWindowSeconds"] == autoscaler.LESS_WINDOW_S
    percents, pods = {"type": "Percent", "periodSeconds": 60}, {"type": "Pods", "periodSeconds": 60}
    assert more["policies"] == [
        percents | {"value": 100 * autoscaler.MORE_SHARE},
        pods | {"value": autoscaler.MORE_PODS},
    ]
    assert less["policies"] == [
        percents | {"value": 100 * autoscaler.LESS_SHARE},
        pods | {"value": autoscaler.LESS_PODS},
    ]


def test_monitors_find_the_programs() -> None:
    """Selectors, ports and tokens of the monitors are those of the programs."""
    service, agents = one("Service", "docllm-exporter"), one("Deployment", "docllm-agents")
    of_exporter = one("ServiceMonitor", "docllm-exporter")["spec"]
    of_agents = one("PodMonitor", "docllm-agents")["spec"]
    labels = agents["spec"]["template"]["metadata"]["labels"]
    assert of_exporter["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert of_agents["selector"]["matchLabels"].items() <= labels.items()
    for endpoint in (*of_exporter["endpoints"], *of_agents["podMetricsEndpoints"]):
        assert endpoint["port"] == "http"
        token = endpoint["authorization"]["credentials"]
        assert token["key"] in secrets()[token["name"]]


def test_the_policy_lets_in_only_who_reads_metrics() -> None:
    """The ports are those of the programs, and no address of credentials is reached."""
    policy = one("NetworkPolicy", "docllm")["spec"]
    ports = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert ports == {container(name)["ports"][0]["containerPort"] for name in ("agent", "exporter")}
    open_to = [block["ipBlock"] for rule in policy["egress"] for block in rule.get("to", ())]
    closed = [ip_network(network) for block in open_to for network in block["except"]]
    for address in CREDENTIALS:
        assert any(ip_address(address) in network for network in closed), address
        assert not is_public(ip_address(address))
    assert policy["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "docllm"}
