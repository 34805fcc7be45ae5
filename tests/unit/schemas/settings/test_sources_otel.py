"""Where traces go, by the settings and by OpenTelemetry's own variables."""

from pathlib import Path
from typing import Any

import pytest

from docllm.schemas.settings.config import OtelConfig, Secret
from tests.support.settings import NAMED, fault, load

COLLECTOR = '[otel]\nendpoint = "http://file:4318"\n'
VARIABLES: dict[str, Any] = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://variable:4318",
    "OTEL_EXPORTER_OTLP_HEADERS": "key=secret",
}


def test_a_variable_of_opentelemetry_is_enough(tmp_path: Path) -> None:
    """The one for traces wins, as OpenTelemetry wants it."""
    assert load(tmp_path).otel == OtelConfig()
    assert load(tmp_path, **VARIABLES).otel.endpoint == "http://variable:4318"
    own: dict[str, Any] = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:4318/v1/traces"}
    found = load(tmp_path, **VARIABLES, **own).otel
    assert (found.endpoint, found.named) == ("http://traces:4318/v1/traces", False)


def test_the_setting_wins(tmp_path: Path) -> None:
    """The setting's headers are secret."""
    toml = f'{COLLECTOR}headers = {{ "x-key" = "hunter2" }}\nratio = 0.5\nto_provider = true\n'
    otel = load(tmp_path, toml, OTEL_EXPORTER_OTLP_ENDPOINT="http://variable:4318").otel
    assert otel == OtelConfig(
        endpoint="http://file:4318",
        named=True,
        headers={"x-key": Secret("hunter2")},
        ratio=0.5,
        to_provider=True,
    )
    assert "hunter2" not in repr(otel)


def test_headers_of_the_environment_go_to_no_collector_that_nobody_named(tmp_path: Path) -> None:
    """A file that was only found may be a stranger's."""
    text = fault(tmp_path, COLLECTOR, {}, **VARIABLES)
    assert "OTEL_EXPORTER_OTLP_HEADERS" in text
    assert "--config docllm.toml" in text
    named = load(tmp_path, COLLECTOR, NAMED, **VARIABLES)
    assert named.otel.endpoint == "http://file:4318"


@pytest.mark.parametrize("link", ["https://j/trace", "ftp://j/{trace_id}", "{trace_id}"])
def test_a_link_without_a_place_for_the_id_is_refused(tmp_path: Path, link: str) -> None:
    """A person would find the same page for every task."""
    text = fault(tmp_path, f'[otel]\nlink_template = "{link}"\n')
    assert "otel.link_template is wrong; " in text
    assert "{trace_id}" in text


def test_a_link_names_the_trace(tmp_path: Path) -> None:
    """Without a template there is none."""
    otel = load(tmp_path, '[otel]\nlink_template = "https://j/{trace_id}?x"\n').otel
    assert (otel.link("4b"), OtelConfig().link("4b")) == ("https://j/4b?x", "")
