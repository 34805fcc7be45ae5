"""Mails become text: their heads, the text that a reader sees, and the names of the rest."""

from email.message import EmailMessage

import pytest

from docllm.agent.documents.conversion.mail import text_of_mail
from docllm.schemas.text.document_text import NoTextError

HEAD = b"MIME-Version: 1.0\r\n"
PGP = b"""Content-Type: multipart/encrypted; boundary=b

--b
Content-Type: application/pgp-encrypted

Version: 1
--b--
"""


def mail(subject: str = "Grüße") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "Ü <a@b.test>", "c@d.test", subject
    return message


SHOWN = "From: Ü <a@b.test>\nTo: c@d.test\nSubject: Grüße\n\n"


@pytest.mark.parametrize("transfer", ["base64", "quoted-printable", "8bit"])
def test_a_mail_is_decoded(transfer: str) -> None:
    """Heads and text are read as they were written."""
    message = mail()
    message.set_content("The contract\nends in März.\n", cte=transfer)

    assert text_of_mail(message.as_bytes()) == (SHOWN + "The contract\nends in März.", ())


def test_attachments_are_named() -> None:
    """A forwarded mail is read; a file is named, and a picture of the page is not."""
    forwarded = mail("inner")
    forwarded.set_content("inner text")
    message = mail()
    message.set_content("outer text")
    message.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="a b.pdf")
    message.add_attachment("notes", filename="n.txt")
    message.add_attachment(b"x", maintype="image", subtype="png", disposition="inline")
    message.add_attachment(forwarded)

    read = text_of_mail(message.as_bytes())

    assert read.text == (
        SHOWN + "outer text\n\nFrom: Ü <a@b.test>\nTo: c@d.test\nSubject: inner\n\ninner text"
    )
    assert read.omitted == (
        "attachment a b.pdf",
        "attachment n.txt",
        "attachment of type image/png",
    )


@pytest.mark.parametrize(
    ("plain", "page", "text"),
    [
        ("the text", "<p>the text", "the text"),
        (
            "use HTML",
            "<p>the text that this mail has is here",
            "the text that this mail has is here\n\nuse HTML",
        ),
        ("", "<p>the text", "the text"),
    ],
)
def test_of_two_forms_the_one_with_the_text_is_read(plain: str, page: str, text: str) -> None:
    """A form that says something else than the longer one follows."""
    message = mail()
    message.set_content(plain)
    message.add_alternative(page, subtype="html")
    page_part = list(message.iter_parts())[1]
    assert isinstance(page_part, EmailMessage)
    page_part.add_related(b"x", maintype="image", subtype="png")

    assert text_of_mail(message.as_bytes()) == (SHOWN + text, ())


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"Content-Type: text/plain; charset=iso-2022-jp\n\n\x1b$B7@Ls\x1b(B", "契約"),
        (b"Content-Type: text/plain; charset=utf-7\n\nf+APw-r", "für"),
        (b"Content-Type: text/plain; charset=unknown\n\n" + "für".encode(), "für"),
        (b"Content-Type: text/plain; charset=utf-8\n\nf\xffr", "fÿr"),
        (b"Content-Type: text/html\n\n<meta charset=koi8-r><p>" + "да".encode("koi8-r"), "да"),
        (b"Content-Type: text/rtf\n\n{\\rtf1 in RTF}", "in RTF"),
        (
            b"Subject: =?nothing?q?a?=\nContent-Type: text/plain\n\nb",
            "Subject: =?nothing?q?a?=\n\nb",
        ),
        (b"Subject: a\xfc\nContent-Type: text/plain\n\nb", "Subject: aü\n\nb"),
    ],
)
def test_a_mail_that_is_encoded_in_an_odd_way_is_read(raw: bytes, text: str) -> None:
    """What cannot be decoded is shown as it is, or replaced."""
    assert text_of_mail(HEAD + raw).text == text


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (
            PGP,
            "an encrypted mail",
        ),
        (b"Content-Type: application/pkcs7-mime; smime-type=enveloped-data\n\nx", "an encrypted"),
        (b"Content-Type: application/pdf; name=a.pdf\n\nx", "without text, but attachment a.pdf;"),
        (b"Content-Type: text/plain\n\n \n", "a mail without text;"),
    ],
    ids=range(4),
)
def test_a_mail_without_text_is_refused(raw: bytes, problem: str) -> None:
    """The error names what there is instead."""
    with pytest.raises(NoTextError, match=problem):
        text_of_mail(HEAD + raw)


def test_mails_may_be_nested_deeply() -> None:
    """What is too deep is named, and the rest is read."""
    raw = b"Content-Type: text/plain\n\ninnermost"
    for number in range(40):
        raw = b"Subject: %d\nContent-Type: message/rfc822\n\n" % number + raw

    read = text_of_mail(HEAD + raw)

    assert "Subject: 39" in read.text
    assert "innermost" not in read.text
    assert read.omitted == ("parts that are nested too deeply",)
