"""Unknown variables and routes are named: mistakes, and what nobody typed."""

from pathlib import Path

import pytest

from docllm.agent.routes import RouteNames
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.sources import early_json_log, load_config


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
    assert load_config(flags={}, environ={f"{service}_{form}": "x"}, cwd=tmp_path) == load_config(
        flags={}, environ={}, cwd=tmp_path
    )


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
    with pytest.raises(ConfigError, match=f"DOCLLM_{name} is unknown"):
        load_config(flags={}, environ={f"DOCLLM_{name}": "1"}, cwd=tmp_path)


@pytest.mark.parametrize("value", ["json", "text", "xml", ""])
def test_the_form_of_the_log_is_known_before_the_settings(value: str) -> None:
    """Both programs log their faults in it; a word that is none is such a fault."""
    assert early_json_log({"DOCLLM_LOG_FORMAT": value}) == (value == "json")


TWO = """
[routes.a]
base_url = "http://a/v1"
model = "m"
[routes.b]
base_url = "http://b/v1"
model = "m"
"""
NAMED = """
[routes.m]
base_url = "http://a/v1"
[routes.other]
model = "m"
"""


def names(folder: Path, toml: str) -> RouteNames:
    (folder / "docllm.toml").write_text(toml, encoding="utf-8")
    return RouteNames(load_config(flags={}, environ={}, cwd=folder))


@pytest.mark.parametrize(("toml", "second"), [(TWO, "b"), (NAMED, "other")])
def test_a_second_route_of_a_model_is_taken_by_tasks_that_name_the_route(
    tmp_path: Path, toml: str, second: str
) -> None:
    """Tasks that name the model take its first route by name, the others name the route."""
    assert second in names(tmp_path, toml).configured


@pytest.mark.parametrize(("route", "other"), [("b", "a"), ("a", "b")])
def test_a_type_may_have_a_route_of_its_own_to_the_same_model(
    tmp_path: Path, route: str, other: str
) -> None:
    """A type may have its own route to the same model, for example with another account.

    Tasks of the type take their route, and tasks that name the model take the first by name.
    """
    toml = f"{TWO}[types.invoice]\nroute = '{route}'\n[types.note]\nroute = '{other}'"
    route_names = names(tmp_path, toml)

    assert route_names.name_of("invoice", None) == route
    assert (route_names.name_of("invoice", "m"), route_names.name_of("document", "m")) == ("a", "a")
    assert (route_names.model_of("a"), route_names.model_of("b")) == ("m", "m")


def test_a_route_may_have_the_model_of_the_default_one(tmp_path: Path) -> None:
    """A route may have the default route's model: tasks that name the model take it.

    Tasks without a model take the default route.
    """
    route_names = names(
        tmp_path, "[llm]\nbase_url = 'http://l/v1'\nmodel = 'm'\n[routes.fast]\nmodel = 'm'"
    )

    assert (route_names.name_of("document", "m"), route_names.name_of("document", None)) == (
        "fast",
        "default",
    )


def test_names_that_differ_by_a_blank_are_refused(tmp_path: Path) -> None:
    """Names that differ only by a blank are refused.

    MariaDB takes them for one name, so a guard of one would stop the other.
    """
    with pytest.raises(
        ConfigError,
        match=r"routes\.'a ': use at most 64 printable characters for a route's name, no blank "
        r"at its ends",
    ):
        names(tmp_path, "[routes.a]\nmodel = 'm'\n[routes.'a ']\nmodel = 'n'")


def test_the_size_of_a_models_context_arrives(tmp_path: Path) -> None:
    """`[llm]` has it for its model, and each route for its own."""
    toml = "[llm]\ncontext_tokens = 8_000\n[routes.large]\ncontext_tokens = 128_000"
    (tmp_path / "docllm.toml").write_text(toml)

    config = load_config(flags={}, environ={}, cwd=tmp_path)

    assert config.llm.context_tokens == 8_000
    assert config.routes["large"].context_tokens == 128_000


@pytest.mark.parametrize("wrong", ["0", "'128k'", "1.5", "true"])
def test_a_context_that_is_no_whole_number_of_tokens_is_refused(tmp_path: Path, wrong: str) -> None:
    """The fault names the line and the right form."""
    (tmp_path / "docllm.toml").write_text(f"[routes.large]\ncontext_tokens = {wrong}")

    with pytest.raises(
        ConfigError,
        match=r"line 2: routes\.large\.context_tokens is wrong; write a whole number from 1 to",
    ):
        load_config(flags={}, environ={}, cwd=tmp_path)


def test_the_form_of_structured_output_is_one_of_three(tmp_path: Path) -> None:
    """Another word is refused with the known ones."""
    (tmp_path / "docllm.toml").write_text("[routes.r]\nstructured = 'json_object'")
    assert load_config(flags={}, environ={}, cwd=tmp_path).routes["r"].structured == "json_object"

    (tmp_path / "docllm.toml").write_text("[routes.r]\nstructured = 'json'")
    with pytest.raises(
        ConfigError,
        match=r"line 2: routes\.r\.structured is wrong; "
        "write one of json_schema, json_object, none, in quotes",
    ):
        load_config(flags={}, environ={}, cwd=tmp_path)
