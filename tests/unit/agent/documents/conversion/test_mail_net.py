"""Whatever writes a mail, its text is read, or the part that holds it is named."""

import base64

import pytest

from docllm.agent.documents.conversion.mail import text_of_mail
from docllm.schemas.documents.kind import Kind, kind_of
from docllm.schemas.text.document_text import NoTextError

MIME = b"MIME-Version: 1.0\n"
PLAIN = b"Content-Type: text/plain\n"
B64 = b"Content-Transfer-Encoding: base64\n"
LONG = b"The contract ends in May, and both parties agree.\n"
INNER = b"Subject: in\n" + PLAIN + b"\nkept\n"


def parts(*each: bytes, kind: str = "mixed", before: str = "", after: str = "") -> bytes:
    """Return the head and body of a mail of several parts."""
    body = b"".join(b"--b\n" + part + b"\n" for part in each)
    head = f"Content-Type: multipart/{kind}; boundary=b\n\n{before}\n"
    return head.encode() + body + b"--b--\n" + after.encode()


def text(body: bytes, kind: str = "plain", more: bytes = b"") -> bytes:
    """Return a part that is text."""
    return b"Content-Type: text/%s\n%s\n%s" % (kind.encode(), more, body)


def coded(body: bytes) -> bytes:
    return base64.encodebytes(body)


UU = b"a\nbegin 644 a.bin\n#86)C\n`\nend\nb"
PGP = b"a\n-----BEGIN PGP MESSAGE-----\n\nhQEMA\n-----END PGP MESSAGE-----\nb"
WINMAIL = b'Content-Type: application/ms-tnef; name="winmail.dat"\n\nx'
NAMED = b"Content-Type: application/pdf\nContent-Disposition: attachment; %s\n\nx"
APPLE = parts(text(b"<p>a", "html"), b"Content-Type: application/pdf; name=a.pdf\n\nx")
APPLE = APPLE.replace(b"--b", b"--c").replace(b"=b", b"=c")
B64_PARTS = b"Content-Type: multipart/mixed; boundary=b\n" + B64 + b"\n"


@pytest.mark.parametrize(
    ("raw", "shown", "omitted"),
    [
        ("Subject: für €\n".encode() + PLAIN + b"\nb", "Subject: für €\n\nb", ()),
        (b"Subject: " + b"x" * 20_000 + b"\n\nb", "", ("rest of the head Subject",)),
        (text(coded(LONG * 9)[:-4], more=B64), "", ("the end of the part of type text/plain",)),
        (text(coded(LONG).replace(b"\n", b" \n"), more=B64.replace(b"4\n", b"4 \n")), "", ()),
        (text(coded(LONG) + b"more", more=B64), "", ("the end of the part of type text/plain",)),
        (text(b"kept, as it is", more=B64), "kept, as it is", ()),
        (b"Subject: a\nSubject: b\n\nkept", "Subject: a / b\n\nkept", ()),
        (parts(text(b"a"), b"Content-Type: multipart/encrypted\n\nx"), "a", ("encrypted part",)),
        (b"Content-Type: multipart/mixed; boundary=c\n\nkept", "kept", ()),
        (B64_PARTS + coded(b"--b\n\nkept\n--b--\n"), "kept", ()),
        (parts(text(b"a"), before="kept"), "a", ("text before the first part",)),
        (parts(text(b"a"), before="This is a MIME message.", after="\n"), "a", ()),
        (parts(text(b"a"), after="kept"), "a", ("text after the last part",)),
        (parts(text(b"a"))[:-6], "a", ("the end of the mail, which is cut off",)),
        (
            parts(text(b"a"), b"Content-Type: application/x\n\nb"),
            "a",
            ("attachment of type application/x",),
        ),
        (text("契約".encode("utf-16-le"), "plain; charset=utf-16le"), "契約", ()),
        (text("ü".encode("cp850"), "plain; charset=ibm850"), "ü", ()),
        (
            parts(text(b"a"), NAMED % b"filename==?utf-8?q?f=C3=BCr.pdf?="),
            "a",
            ("attachment für.pdf",),
        ),
        (parts(text(b"a"), NAMED % b"filename*=utf-8''f%C3%BCr.pdf"), "a", ("attachment für.pdf",)),
        (parts(text(b"a"), NAMED % 'filename="für.pdf"'.encode()), "a", ("attachment für.pdf",)),
        (parts(text(b"a"), WINMAIL), "a", ("attachment winmail.dat",)),
        (text(UU), "a\nb", ("attachment a.bin",)),
        (text(b"begin 644 words\nof a text\nend"), "begin 644 words\nof a text\nend", ()),
        (text(PGP), "a\nb", ("encrypted text (PGP)",)),
        (text(LONG.replace(b"\n", b"\r") + b"b"), "agree.\nb", ()),
        (parts(text(b"a"), text(rb"{\rtf1}", "rtf")), "a", ("part of type text/rtf",)),
        (text(rb"{\rtf1 a{\*\annotation c}}", "rtf"), "a", ("1 comment",)),
        (
            parts(text(b"a"), text(b"BEGIN:VCALENDAR\nkept", "calendar"), kind="alternative"),
            "kept",
            (),
        ),
        (parts(text(b""), text(b"<p>kept", "html"), kind="alternative"), "kept", ()),
        (
            parts(text(b"a" * 20), text(b"<p>" + b"b" * 30, "html"), kind="alternative"),
            "b" * 30,
            (),
        ),
        (parts(text(LONG), text(b"<p>" + LONG + b"!", "html"), kind="alternative"), "agree.", ()),
        (parts(text(b"a"), APPLE, kind="alternative"), "a", ("attachment a.pdf",)),
        (parts(text(b"a"), text(b"kept", "csv"), kind="related"), "a\n\nkept", ()),
        (
            parts(text(b"a"), b"Content-Type: application/pdf\n\nx", kind="related"),
            "a",
            ("attachment of type application/pdf",),
        ),
        (b"Content-Type: message/rfc822\n\n" + INNER, "Subject: in\n\nkept", ()),
        (b"Content-Type: message/rfc822\n" + B64 + b"\n" + coded(INNER), "Subject: in\n\nkept", ()),
        (
            parts(text(b"a"), b"Content-Type: message/external-body\n\n\n"),
            "a",
            ("attachment of type message/external-body",),
        ),
        (
            parts(text(b"a"), b"Content-Type: message/delivery-status\n\nStatus: 5.1.1\n"),
            "Status: 5.1.1",
            (),
        ),
        (text(b"kept", more=b"Content-Transfer-Encoding: 8-bit\n"), "kept", ()),
        (text(b"<html>kept", "plain2"), "kept", ()),
    ],
    ids=range(40),
)
def test_text_is_read_or_named(raw: bytes, shown: str, omitted: tuple[str, ...]) -> None:
    """A mail that is not as the standards say is a mail all the same."""
    read = text_of_mail(MIME + raw)

    assert read.text.endswith(shown)
    assert read.omitted == omitted


@pytest.mark.parametrize(
    "raw",
    [
        b"Content-Type: application/x-pkcs7-mime; smime-type=enveloped-data\n\nx",
        parts(text(b"Version: 1"), kind="encrypted"),
        text(PGP[2:-2]),
    ],
    ids=range(3),
)
def test_an_encrypted_mail_is_refused_as_such(raw: bytes) -> None:
    """It is no mail without text."""
    with pytest.raises(NoTextError, match="encrypted"):
        text_of_mail(MIME + raw)


def test_a_mail_with_the_line_ends_of_old_macs_is_one() -> None:
    """Its text would be base64 otherwise."""
    raw = (MIME + text(coded(LONG), more=B64)).replace(b"\n", b"\r")

    assert kind_of(raw) is Kind.MAIL
    assert text_of_mail(raw).text == LONG.decode().strip()
