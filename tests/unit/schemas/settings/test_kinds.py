"""The checks of setting values: the accepted forms, and refusals that show no value."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.settings import kinds
from docllm.schemas.settings.kinds import MAX_BYTES
from tests.support.settings import fault, load


@pytest.mark.parametrize(
    ("check", "value", "result"),
    [
        (kinds.text, " a ", "a"),
        (kinds.truth, True, True),
        (kinds.whole(1, 9), "9", 9),
        (kinds.whole(1, 9), 1, 1),
        (kinds.real(0.5, 2), "0.5", 0.5),
        (kinds.real(0.5, 2), 2, 2.0),
        (kinds.path, "~", Path.home()),
        (kinds.paths, "/a:/b", (Path("/a"), Path("/b"))),
        (kinds.paths, [], ()),
        (kinds.tiers, "30s, 5m,1h", ("30s", "5m", "1h")),
        (kinds.tiers, ["1m"], ("1m",)),
        (kinds.names, "a, b", ("a", "b")),
        (kinds.function, "my.module:summarize", "my.module:summarize"),
        (kinds.http_url, "http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        (kinds.client_setting("socket.keepalive.enable"), True, "true"),
        (kinds.client_setting("debug"), "broker", "broker"),
        (kinds.client_setting("fetch.max.bytes"), 5, "5"),
    ],
)
def test_a_value_of_the_right_form_is_taken(
    check: Callable[[Any], Any], value: object, result: object
) -> None:
    """Values come from the file with their types, from the environment as text."""
    assert check(value) == result


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (kinds.text, " "),
        (kinds.text, 7),
        (kinds.truth, "true"),
        (kinds.whole(1, 9), 10),
        (kinds.whole(1, 9), True),
        (kinds.whole(1, 9), 1.0),
        (kinds.whole(1, 9), "nine"),
        (kinds.real(0.5, 2), "nan"),
        (kinds.real(0.5, 2), False),
        (kinds.path, "a\0b"),
        (kinds.path, "~nobody-of-this-name/x"),
        (kinds.tiers, "5m,30s"),
        (kinds.tiers, "5m,300s"),
        (kinds.tiers, ""),
        (kinds.tiers, "soon"),
        (kinds.tiers, 30),
        (kinds.names, {"a": 1}),
        (kinds.networks, "10.0.0.1/8"),
        (kinds.networks, "internal"),
        (kinds.networks, 10),
        (kinds.function, "module.function"),
        (kinds.database_url, "postgresql://u@h/d"),
        (kinds.database_url, "mysql://u:p@ss@h/d"),
        (kinds.database_url, "mysql://u:p@h:3306"),
        (kinds.database_url, "mysql://u:p@h/d?ssl_ca=/ca&ssl_check_hostname=no"),
        (kinds.redis_url, "localhost:6379"),
        (kinds.redis_url, "redis://h:6379/first"),
        (kinds.redis_url, "redis://h:70000/0"),
        (kinds.redis_url, "redis://:p#ss@h:6379/0"),
        (kinds.redis_url, "redis://[::1"),
        (kinds.http_url, "https://"),
        (kinds.http_url, "file:///etc"),
        (kinds.http_url, "http://[::1"),
        (kinds.client_setting("acks"), "0"),
        (kinds.client_setting("error_cb"), "x"),
        (kinds.client_setting("fetch.max.bytes"), [1]),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_with_the_right_form(
    check: Callable[[Any], Any], value: object
) -> None:
    """Every check raises the same error, whatever it is given."""
    with pytest.raises(ValueError, match=r"write|docllm sets|librdkafka|trusted|no option"):
        check(value)


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("mysql://u:p@h:3306/d", "mysql+pymysql://u:p@h:3306/d"),
        ("mariadb://u:p%40ss@h/d?ssl_ca=/ca", "mysql+pymysql://u:p%40ss@h/d?ssl_ca=/ca"),
        ("sqlite:////data/ledger.sqlite", "sqlite:////data/ledger.sqlite"),
        ("mysql://u:p?w@h/d?charset=utf8mb4", "mysql+pymysql://u:p?w@h/d"),
        (
            "mysql+pymysql://u@h/d?charset=UTF8MB4&ssl_ca=/a%20b/ca&parseTime=true",
            "mysql+pymysql://u@h/d?ssl_ca=/a+b/ca",
        ),
    ],
)
def test_the_url_of_a_database_names_the_driver(url: str, driver: str) -> None:
    """MariaDB and MySQL share one driver."""
    assert kinds.database_url(url).reveal() == driver


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (kinds.database_url, "mysql://u:p@a:3306,b:3306/d"),
        (kinds.database_url, "mysql://a,b/d?ssl_ca=/c@a"),
        (kinds.database_url, "mariadb://u:p,@[::1],[::2]:3307"),
        (kinds.redis_url, "redis://a:1,b:2"),
        (kinds.redis_url, "rediss://:p@a,b/0"),
        (kinds.redis_url, "redis+sentinel://a:26379/main/0"),
        (kinds.redis_url, "redis-cluster://a:6379"),
    ],
)
def test_several_hosts_are_refused_with_what_to_name_instead(
    check: Callable[[Any], Any], value: str
) -> None:
    """The message used to be about an `@` in the password, or none came before the connection."""
    with pytest.raises(ValueError, match=r"name a proxy or a virtual address .*: write (my|re)"):
        check(value)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (kinds.database_url, "mysql://u,v:p,w@h/d,e?ssl_ca=/a,b"),
        (kinds.redis_url, "redis://u:p,w@h:6379/0"),
        (kinds.redis_url, "unix:///run/a,b.sock"),
    ],
)
def test_a_comma_elsewhere_in_an_address_is_no_list_of_hosts(
    check: Callable[[Any], Any], value: str
) -> None:
    """Passwords, files and databases may have commas."""
    assert value.partition("://")[2].partition("?")[0] in check(value).reveal()


@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()))
)
def test_a_number_is_within_its_limits_or_refused(value: object) -> None:
    """No value passes a check by its type alone."""
    for check in (kinds.whole(1, 9), kinds.real(1, 9)):
        try:
            number = check(value)
        except ValueError:
            continue
        assert 1 <= number <= 9


TOML = "[types.invoice]\nschema = 'invoice.json'"


def test_the_schema_is_read_from_the_folder_of_the_settings(tmp_path: Path) -> None:
    """A relative path belongs to the file that names it; the schema itself is the value."""
    schema = {"type": "object", "required": ["total"]}
    (tmp_path / "invoice.json").write_text(json.dumps(schema))

    assert load(tmp_path, TOML).types["invoice"].schema == schema


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the file cannot be read: No such file"),
        (b'{"type":\n oops}', "the file is not JSON at line 2"),
        (b"[1]", "the schema is a list; write an object"),
        (b'{"type": "banana"}', "the schema is not a valid JSON Schema"),
        (b" " * (MAX_BYTES + 1), "the file is too large"),
    ],
)
def test_a_file_that_is_no_schema_is_refused_with_its_setting(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    """With such a file each task of the type would fail, one by one, and be paid for."""
    if content is not None:
        (tmp_path / "invoice.json").write_bytes(content)

    text = fault(tmp_path, TOML)
    assert "line 2: types.invoice.schema is wrong; " in text
    assert words in text
