"""Text is decoded by its byte order mark, its own declaration, or what its bytes are like."""

import sys

import pytest

from docllm.schemas.documents.encoding import decoded_text, page_text
from docllm.schemas.text.document_text import NoTextError

TEXTS = {
    "cp1252": "Grüße aus Köln\N{EN DASH}die Straße ist „schön“ und kostet 5 €.",
    "latin-1": "El niño comió jamón en la mañana. ¿Qué pasó?",
    "cp1251": "Привет, мир! Это обычный текст на русском языке.",
    "koi8_r": "Привет, мир! Это обычный текст на русском языке.",
    "cp1253": "Καλημέρα κόσμε. Αυτό είναι ένα ελληνικό κείμενο.",
    "cp1254": "Türkçe metin: şeker, çocuk, öğretmen, İstanbul güzel, dağ başi.",
    "shift_jis": "これは日本語の文書です。漢字とひらがなとカタカナが混ざっています。",
    "euc_jp": "これは日本語の文書です。漢字とひらがなとカタカナが混ざっています。",
    "gb18030": "这是一个中文文档。它包含许多汉字,用来测试编码检测。",
    "big5": "這是一個中文文件。它包含許多漢字,用來測試編碼檢測。",
    "euc_kr": "이것은 한국어 문서입니다. 인코딩 감지를 시험하기 위한 것입니다.",
    "utf-8-sig": "Grüße",
    "utf-16": "Grüße 文書 😀",
    "utf-32": "Grüße 文書 😀",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_text_in_any_usual_encoding_is_decoded(encoding: str) -> None:
    """A text of one sentence, or of many megabytes, is read as it was written."""
    text = TEXTS[encoding]

    assert decoded_text(text.encode(encoding)) == text
    if not encoding.startswith("utf-"):
        long = f"{text}\n" * 10_000
        assert decoded_text(long.encode(encoding)) == long


def test_text_that_breaks_its_byte_order_mark_is_refused() -> None:
    """A byte order mark is a promise; text that breaks it is not guessed."""
    with pytest.raises(NoTextError, match="UTF-16"):
        decoded_text(b"\xff\xfea")
    with pytest.raises(NoTextError, match="zero character"):
        decoded_text("a\0b".encode("utf-16"))


def test_without_the_extra_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """UTF-8 and byte order marks need no library; another encoding names the extra."""
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)

    assert decoded_text("ü".encode("utf-16")) == "ü"
    with pytest.raises(NoTextError, match=r"pip install 'docllm\[documents\]'"):
        decoded_text("Straße".encode("cp1252"))


@pytest.mark.parametrize(
    "raw",
    [
        '<meta charset="iso-8859-1"><p>ü €'.encode("cp1252"),
        "<META http-equiv=x content='text/html; charset=windows-1252'><p>ü €".encode("cp1252"),
        "<?xml version='1.0' encoding='cp1252'?><p>ü €".encode("cp1252"),
        "\ufeff<meta charset=koi8-r><p>ü €".encode("utf-16"),
        "<meta charset=utf-16><p>ü €".encode(),
        "<meta charset=nothing><p>ü €".encode(),
        "<meta charset=rot13><p>ü €".encode(),
        "<meta charset=punycode><p>ü €".encode(),
        "<p>ü €".encode(),
    ],
)
def test_a_page_is_decoded_as_it_says_itself(raw: bytes) -> None:
    """A byte order mark wins; an encoding that is unknown or cannot be true does not count."""
    assert page_text(raw).endswith("<p>ü €")


def test_a_page_with_a_wrong_byte_is_read_as_browsers_do() -> None:
    """One byte that does not fit the page's own encoding costs one character."""
    assert page_text(b"<meta charset=utf-8>a\xffb").endswith("a\ufffdb")
