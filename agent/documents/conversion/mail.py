"""Extracts plain text from a mail or a page saved as one (MHTML): its heads, then its text."""

from collections.abc import Iterator
from contextlib import suppress
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message

from docllm.agent.documents.conversion.html import text_of_source
from docllm.agent.documents.conversion.rtf import text_of_rtf
from docllm.schemas.documents.encoding import decoded_text, page_text, text_in
from docllm.schemas.text.document_text import NoTextError, ReadText

_HEADS = ("From", "To", "Cc", "Date", "Subject")
_HEAD_CHARS = 2000
_READ_CHARS = 20_000
_MAX_DEPTH = 20
_RELATED = "multipart/related"
_PLAIN, _PAGE, _RTF = "text/plain", "text/html", "text/rtf"
_READ = frozenset({_PLAIN, _PAGE, _RTF})
# Parts that nobody reads: signatures, and what a report says to programs.
_FOR_PROGRAMS = frozenset(
    {
        "application/pgp-signature",
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
        "message/delivery-status",
    }
)
_ENCRYPTED = frozenset({"application/pgp-encrypted", "application/pkcs7-mime"})
_BETWEEN = "\n\n"
_BEFORE = b"\xef\xbb\xbf\r\n"  # a byte order mark and blank lines, which would end the heads


def text_of_mail(raw: bytes) -> ReadText:
    """Return the text of a mail, and the names of its attachments. Raises NoTextError."""
    omitted: list[str] = []
    heads, body = _texts(message_from_bytes(raw.lstrip(_BEFORE)), omitted)
    if not body:
        reason = f", but {', '.join(omitted[:3])}" if omitted else ""
        raise NoTextError(f"is a mail without text{reason}; save its attachments and load these")
    return ReadText(_BETWEEN.join(filter(None, (heads, body))), tuple(omitted))


def _texts(message: "Message[str, str]", omitted: list[str], depth: int = 0) -> tuple[str, str]:
    heads = "\n".join(f"{name}: {text}" for name in _HEADS if (text := _head(message, name)))
    return heads, _BETWEEN.join(filter(None, _parts(message, omitted, depth)))


def _parts(part: "Message[str, str]", omitted: list[str], depth: int) -> Iterator[str]:
    """Yield the texts of a part; what is not read is added to `omitted`."""
    kind = part.get_content_type()
    if kind in _ENCRYPTED and "signed" not in str(part.get_param("smime-type", "")):
        raise NoTextError("is an encrypted mail; save a copy that is not")
    if depth > _MAX_DEPTH:
        omitted.append("parts that are nested too deeply")
    elif kind == "message/rfc822":
        for inner in _inner(part):
            yield _BETWEEN.join(filter(None, _texts(inner, omitted, depth + 1)))
    elif kind == "multipart/alternative":
        yield _alternative(part, omitted, depth)
    elif part.is_multipart():
        for inner in _inner(part, seen=kind == _RELATED):
            yield from _parts(inner, omitted, depth + 1)
    elif kind in _READ and part.get_content_disposition() != "attachment":
        text, notes = _text(part)
        omitted += notes
        yield text
    elif kind not in _FOR_PROGRAMS:
        name = part.get_filename()
        omitted.append(f"attachment {name}" if name else f"attachment of type {kind}")


def _alternative(part: "Message[str, str]", omitted: list[str], depth: int) -> str:
    """Return the text in plain, or of a page that says more than twice as much."""
    plain = richer = ""
    for inner in _inner(part):
        lost: list[str] = []
        text = _BETWEEN.join(filter(None, _parts(inner, lost, depth + 1)))
        if inner.get_content_type() == _PLAIN:
            plain = plain or text
        elif len(text) > len(richer):
            richer = text
            omitted += [name for name in lost if name not in omitted]
    return richer if len(richer) > 2 * len(plain) else plain


def _inner(part: "Message[str, str]", *, seen: bool = False) -> Iterator["Message[str, str]"]:
    """Yield the parts of a part; with `seen`, without the pictures and styles of a page."""
    payload = part.get_payload()
    for inner in payload if isinstance(payload, list) else ():
        if isinstance(inner, Message) and (
            not seen or inner.get_content_type() in _READ or _holds(inner)
        ):
            yield inner


def _holds(part: "Message[str, str]") -> bool:
    """Return whether a part holds others, or is an attachment with a name of its own."""
    return part.is_multipart() or part.get_content_disposition() == "attachment"


def _text(part: "Message[str, str]") -> ReadText:
    raw = part.get_payload(decode=True)
    if not isinstance(raw, bytes) or not raw.strip():
        return ReadText("")
    kind = part.get_content_type()
    if kind == _RTF:
        return text_of_rtf(raw)
    declared = text_in(raw, part.get_content_charset() or "")
    if kind == _PAGE:
        source, notes = declared or page_text(raw)
        return ReadText(text_of_source(source), notes)
    text, notes = declared or decoded_text(raw)
    return ReadText(text.replace("\r\n", "\n").strip(), notes)


def _head(message: "Message[str, str]", name: str) -> str:
    """Return a head's text on one line; a head that is not encoded right is shown as it is."""
    value = str(message.get(name, ""))[:_READ_CHARS]
    with suppress(ValueError, LookupError, HeaderParseError):
        value = str(make_header(decode_header(value)))
    return " ".join(value.split())[:_HEAD_CHARS]
