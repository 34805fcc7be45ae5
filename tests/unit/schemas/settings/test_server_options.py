"""The options at the end of a database URL, as other tools write them."""

import pytest
from sqlalchemy.engine import make_url

from docllm.schemas.settings.server_options import read_options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "charset=utf8mb4",
        "charset=utf8",
        "charset=UTF8MB4&use_unicode=1",
        "binary_prefix=true",
        "charset=utf8mb4&parseTime=True&loc=UTC",
    ],
)
def test_what_docllm_does_in_any_case_is_taken_and_left_out(text: str) -> None:
    """People copy the URL from the settings of another program."""
    assert read_options(text) == ""


def test_options_of_the_driver_stay_as_they_are() -> None:
    """The options survive beside options that are left out, whatever characters they hold."""
    alone = "ssl_ca=/ca%20x.pem&ssl_check_hostname=false"

    assert read_options(alone) == alone
    beside = make_url(f"mysql://h/d?{read_options('charset=utf8mb4&ssl_ca=/a%20b%26c.pem')}")
    assert beside.query == {"ssl_ca": "/a b&c.pem"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("charset=latin1", "charset after '?' can only be utf8 or utf8mb4; remove it"),
        ("charest=utf8mb4", "charest after '?' is unknown; did you mean charset?"),
        ("hunter=2", "hunter after '?' is unknown; known are: ssl_ca, ssl_capath"),
        ("ssl-mode=REQUIRED", "ssl-mode after '?' is no option of docllm; write ssl_ca=FILE"),
        ("useSSL=true", "useSSL after '?' is no option of docllm; write ssl_ca=FILE"),
        ("ssl_disabled=false", "ssl_disabled after '?' is no option of docllm; write ssl_ca"),
        ("p@ss/word", "an option after '?' is unknown"),
        ("ssl_cert=/c", "without ssl_ca=FILE"),
        ("ssl_ca=/c&ssl_check_hostname=2", "write ssl_check_hostname=true or"),
    ],
)
def test_another_option_is_refused_by_name(text: str, words: str) -> None:
    """Above all those that would have protected the connection; no value is shown."""
    with pytest.raises(ValueError, match=r"docllm|write|remove|name") as refused:
        read_options(text)

    assert words in str(refused.value)
    assert "p@ss" not in str(refused.value)
