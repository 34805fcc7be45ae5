"""Error texts fit one line, and secrets in them are masked; amounts of money."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.agent.judge import fingerprint, one_line
from docllm.schemas.text.wording import masking, money, units


@pytest.mark.parametrize(
    "filler",
    [
        "a",
        "1",
        "'",
        '"',
        "#",
        "sk-",
        "x1 ",
        "a-",
        "bearer ",
        "_",
        "token:",
        'api_key"',
        "secret = '",
    ],
)
def test_long_texts_take_no_time(filler: str) -> None:
    """No pattern backtracks: a hostile text of a megabyte takes a moment."""
    began = time.thread_time()

    one_line(filler * 1_000_000)
    fingerprint("SERVER", filler * 1_000_000)

    assert time.thread_time() - began < 1.0


@given(st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Cf", "Cc", "Lu"])))
def test_a_text_fits_one_line(text: str) -> None:
    """Any text is stored as one printable line of at most 500 characters, with a fingerprint.

    Half a surrogate pair used to make its task dead as SETTLE, with its text lost. U+202E used to
    turn lines of the log around.
    """
    shown = one_line(text)

    shown.encode()
    assert shown.isprintable()

    assert len(shown) <= 500
    assert len(shown.splitlines()) <= 1
    assert len(fingerprint("SERVER", text)) == 16


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-Abc_123456",
        "sk-ant-api03-xyzxyz",
        "gsk_abcdefgh",
        "hf_abcdefgh",
        "AIzaSyABCDEFGH",
        "Bearer abc.def-123",
        "api_key=abcdef123",
        "token: 4f9a8c7b6d5e4f3a2b1c0d9e8f7a6b5c",
        "API key: 4f9a8c7b6d5e4f3a2b1c0d9e8f7a6b5c",
    ],
)
def test_keys_are_masked(secret: str) -> None:
    """A text that looks like a key is masked."""
    assert one_line(f"failed with {secret}, sorry") == "failed with ***, sorry"


@pytest.mark.parametrize("quote", ['"', "'", '\\"'])
def test_keys_in_quotes_are_masked(quote: str) -> None:
    """Keys are masked in a request that is repeated as JSON, or as Python shows it."""
    shown = one_line(f"no entry: {quote}api_key{quote}: {quote}4f9a8c7b6d5e4f3a{quote}")

    assert "4f9a" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "429: token limit: 30000 of 30000 used",
        "400: max_tokens: 9000 > 8192",
        "401: Invalid token provided",
    ],
)
def test_words_about_keys_and_tokens_stay(text: str) -> None:
    """Words about keys and tokens stay readable."""
    assert one_line(text) == text


KEY = "4f/9+c7b=5e"


@pytest.mark.parametrize(
    "body",
    [
        f"no entry with {KEY}!",
        '{"why":"4f\\/9\\u002bc7b\\u003D5e"}',
        f'{{"code":"{KEY}","n":["{KEY}"]}}',
    ],
)
def test_a_secret_of_any_form_is_masked(body: str) -> None:
    """A secret is masked in any form, even if JSON escapes its characters.

    No repr of an object shows it.
    """
    masked = masking(KEY)

    assert (
        masked(body.encode())
        == body.replace(KEY, "***").replace("4f\\/9\\u002bc7b\\u003D5e", "***").encode()
    )
    assert "c7b" not in repr(masked)


def test_a_word_that_serves_as_a_key_masks_nothing() -> None:
    """A plain word that serves as a key masks nothing.

    Local servers take any word, and an error with masked codes would have no class.
    """
    for word in ("", "x", "EMPTY"):
        assert masking(word)(b'{"error":{"code":"EMPTY"}}') == b'{"error":{"code":"EMPTY"}}'


@pytest.mark.parametrize(("micro", "amount"), [(0, 0.0), (1, 0.000001), (2_500_000, 2.5)])
def test_a_million_millionths_are_a_unit(micro: int, amount: float) -> None:
    """What a person pays is shown in the unit of the prices."""
    assert units(micro) == amount


@pytest.mark.parametrize(
    ("micro", "shown"),
    [
        (0, "0.0000"),
        (1, "0.000001"),
        (42, "0.000042"),
        (120, "0.00012"),
        (999, "0.000999"),
        (1_000, "0.0010"),
        (1_250_000_000, "1,250.0000"),
    ],
)
def test_a_small_amount_keeps_its_digits(micro: int, shown: str) -> None:
    """What little a task has cost is not shown as nothing."""
    assert money(units(micro)) == shown
