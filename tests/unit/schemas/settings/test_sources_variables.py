"""Unknown variables are named: mistakes, and not what nobody typed."""

from pathlib import Path

import pytest

from docllm.schemas.settings.sources import early_json_log
from tests.support.settings import fault, load


@pytest.mark.parametrize("service", ["DOCLLM", "DOCLLM_REDIS", "DOCLLM_2_A"])
@pytest.mark.parametrize(
    "form",
    [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "PORT",
        "PORT_6379_TCP",
        "PORT_6379_TCP_ADDR",
        "PORT_6379_TCP_PROTO",
        "PORT_53_UDP_PORT",
    ],
)
def test_the_variables_of_a_kubernetes_service_are_ignored(
    tmp_path: Path, service: str, form: str
) -> None:
    """Variables of a Kubernetes Service are ignored.

    A pod gets them for each Service of its namespace, whatever its name; nobody typed them.
    """
    assert load(tmp_path, "", {}, **{f"{service}_{form}": "x"}) == load(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "REDIS_HOST",
        "REDIS_PORTS",
        "PORT_6379",
        "PORT_X_TCP",
        "PORT_1_TCP_HOST",
        "SERVICE",
        "SERVICE_NAME",
    ],
)
def test_no_other_unknown_variable_is_ignored(tmp_path: Path, name: str) -> None:
    """Only Kubernetes' own forms are ignored; any other unknown name is a mistake."""
    assert f"DOCLLM_{name} is unknown" in fault(tmp_path, "", {}, **{f"DOCLLM_{name}": "1"})


@pytest.mark.parametrize("value", ["json", "text", "xml", ""])
def test_the_form_of_the_log_is_known_before_the_settings(value: str) -> None:
    """Both programs log their faults in it; a word that is none is such a fault."""
    assert early_json_log({"DOCLLM_LOG_FORMAT": value}) == (value == "json")
