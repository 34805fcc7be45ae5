"""Headers for the calls to an LLM: which are refused, and that none is shown."""

from pathlib import Path
from typing import Any

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.account import account
from docllm.schemas.settings.config import Secret
from docllm.schemas.settings.headers import headers, hidden, sent
from tests.support.settings import NAMED, fault, load

AZURE = """
[llm]
base_url = "https://x.openai.azure.com/openai/deployments/d?api-version=1"
headers = { "api-key" = "azure-secret-1", X-Title = " docllm " }
[routes.other]
base_url = "http://other/v1"
[routes.same]
model = "m"
[routes.own.headers]
"OpenAI-Organization" = "org-1"
[routes.plain]
headers = {}
"""


def test_a_route_has_its_own_headers_or_those_of_its_address(tmp_path: Path) -> None:
    """The headers of `[llm]` go to no other address; a route's own table replaces them."""
    config = load(tmp_path, AZURE)

    by_route = {
        name: {header: value.reveal() for header, value in account(config, name).headers.items()}
        for name in ("default", *config.routes)
    }

    ours = {"api-key": "azure-secret-1", "X-Title": "docllm"}
    assert by_route == {
        "default": ours,
        "same": ours,
        "other": {},
        "own": {"OpenAI-Organization": "org-1"},
        "plain": {},
    }
    assert "azure-secret" not in repr(config)


def test_a_route_may_be_named_headers(tmp_path: Path) -> None:
    """Only the table of that name in a route, or in `[llm]`, is a setting."""
    toml = "[routes.headers]\nmodel = 'm'\n[routes.'x.headers']\nmodel = 'n'"

    assert load(tmp_path, toml).routes.keys() == {"headers", "x.headers"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Host = 'x'", "Host: docllm takes it from base_url; write the host there"),
        ("content-LENGTH = '5'", "content-LENGTH: docllm sets it itself; remove it"),
        ("Content-Type = 'text/plain'", "Content-Type: docllm sets it itself"),
        ("X-Client-Request-Id = 'x'", "X-Client-Request-Id: docllm sets it itself"),
        ("Transfer-Encoding = 'x'", "belongs to the connection"),
        ("Connection = 'close'", "belongs to the connection"),
        ("Proxy-Authorization = 'Basic x'", "write HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"),
        ("Idempotency-Key = 'x'", "all calls would have the same key"),
        ("X-N = 5", "X-N: write a text in quotes"),
        ("X-N = ' '", "X-N: write a text in quotes"),
        ("X-N = 'hunter2\u00e4'", "X-N: its value has a line break or another character"),
        ('X-N = "hunter2\\r\\nHost: evil"', "X-N: its value has a line break"),
        ('X-N = "hunter2\\u0000"', "X-N: its value has a line break"),
        (f"X-N = '{'x' * 8001}'", "X-N: its value has 8001 characters; at most 8000"),
        ("'hunter2 hunter2' = 'x'", "a header's name has letters, digits and hyphens"),
        ("'hunter2:' = 'x'", "a header's name has letters"),
        ("'' = 'x'", "a header's name has letters"),
        ("x.y = 'x'", "x: write a text in quotes"),
        ("X-N = 'a'\nx-n = 'b'", "is there twice; capitals make no difference"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(tmp_path: Path, line: str, words: str) -> None:
    """The fault names place and header, says what to do, and shows no value."""
    text = fault(tmp_path, f"[routes.r]\nmodel = 'm'\n[routes.r.headers]\n{line}")

    assert text.startswith("docllm.toml line 3: routes.r.headers is wrong; ")
    assert words in text
    assert "hunter2" not in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("value", ["'api-key: x'", "['api-key', 'x']", "5"])
def test_headers_are_a_table(tmp_path: Path, value: str) -> None:
    """A text or a list is a mistake, and the fault shows the form."""
    text = fault(tmp_path, f"[llm]\nheaders = {value}")

    assert text.startswith("docllm.toml line 2: llm.headers is wrong; write a table of texts, such")


@pytest.mark.parametrize(
    ("toml", "environ", "place"),
    [
        ("[llm]\napi_key = 'k'\nheaders.authorization = 'Basic x'", {}, "llm has"),
        ("[llm]\nheaders.Authorization = 'x'", {"DOCLLM_LLM_API_KEY": "k"}, "llm has"),
        ("[llm]\nheaders.Authorization = 'x'", {"OPENAI_API_KEY": "k"}, "llm has"),
        (
            "[llm]\napi_key = 'k'\n[routes.r.headers]\nAuthorization = 'Basic x'",
            {},
            "routes.r has",
        ),
    ],
)
def test_a_key_and_its_own_header_are_refused_together(
    tmp_path: Path, toml: str, environ: dict[str, Any], place: str
) -> None:
    """Two Authorization headers are no request, and one of the two is not what was meant."""
    text = fault(tmp_path, toml, NAMED, **environ)

    assert text.startswith(f"{place} a key and the header Authorization")
    assert "remove api_key (DOCLLM_LLM_API_KEY, OPENAI_API_KEY), or remove Authorization" in text


def test_the_header_of_a_key_may_be_set_without_a_key(tmp_path: Path) -> None:
    """Some gateways want another scheme than Bearer."""
    config = load(tmp_path, "[llm]\nheaders.Authorization = 'Basic dXNlcg=='")

    assert sent(None, config.llm.headers) == {"Authorization": Secret("Basic dXNlcg==")}


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        ("[llm.headers]\nx = 'y'", {"OPENAI_API_KEY": "k"}),
        ("[llm.headers]\nx = 'y'", {"DOCLLM_LLM_API_KEY": "k"}),
        ("[routes.r.headers]\nx = 'y'", {"DOCLLM_LLM_API_KEY": "k"}),
    ],
)
def test_a_found_file_adds_no_header_to_a_call_with_a_key_of_the_environment(
    tmp_path: Path, toml: str, environ: dict[str, Any]
) -> None:
    """A gateway may forward the call, with its key, to a host that a header names."""
    text = fault(tmp_path, toml, {}, **environ)

    assert text.startswith(f"docllm.toml line 1: the key of {next(iter(environ))} would be sent")
    assert text.endswith(
        "name it if you trust it: --config docllm.toml, or DOCLLM_CONFIG=docllm.toml"
    )
    assert load(tmp_path, toml, NAMED, **environ).llm.api_key == Secret("k")


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        ("[llm]\napi_key = 'k'\nheaders.x = 'y'", {}),
        ("[llm.headers]\nx = 'y'", {"DOCLLM_LLM_BASE_URL": "http://own/v1"}),
        ("[routes.r]\napi_key = 'j'\nheaders.x = 'y'", {"DOCLLM_LLM_API_KEY": "k"}),
        ("[routes.r]\nbase_url = 'http://r'\nheaders.x = 'y'", {"DOCLLM_LLM_API_KEY": "k"}),
    ],
)
def test_a_found_file_adds_headers_to_its_own_calls(
    tmp_path: Path, toml: str, environ: dict[str, Any]
) -> None:
    """No key of the environment goes out with them."""
    assert load(tmp_path, toml, {}, **environ)


def test_a_credential_is_hidden_with_and_without_its_scheme() -> None:
    """A server repeats either."""
    given = headers({"Authorization": "Basic dXNlcg==", "X-A": "two words, three"})

    assert hidden(Secret("key-1\n"), given) == [
        "two words, three",
        "Basic dXNlcg==",
        "words, three",
        "dXNlcg==",
        "key-1",
    ]


@pytest.mark.parametrize("key", ["", " ", "sk-a b", "sk-a\nb", "sk-schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    """A key that no header can hold is refused; an HTTP client would quote it in its error."""
    with pytest.raises(ConfigError) as caught:
        sent(Secret(key), {})

    assert "sk-" not in str(caught.value)


def test_a_key_may_end_in_a_line_break() -> None:
    """A key may end in a line break, as it does when it was read from a file."""
    assert sent(Secret("sk-1\n"), {}) == {"Authorization": Secret("Bearer sk-1")}
