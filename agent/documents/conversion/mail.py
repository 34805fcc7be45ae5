"""Extracts plain text from a mail or a page saved as one (MHTML): its heads, then its text."""

import re
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message

from docllm.agent.documents.conversion.mail_text import (
    ENCODING,
    RawHeads,
    decoded,
    encoding_of,
    head_text,
    is_encoded,
    name_of,
    part_text,
)
from docllm.schemas.text.document_text import NoTextError, ReadText

_HEADS = ("From", "To", "Cc", "Date", "Subject")
_MAX_DEPTH = 20
_ALTERNATIVE, _RELATED = "multipart/alternative", "multipart/related"
_MAIL, _CALENDAR, _PLAIN = "message/rfc822", "text/calendar", "text/plain"
_MAILS = frozenset({_MAIL, "message/global", "message/news"})
_REPORTS = frozenset({"message/delivery-status", "message/disposition-notification"})
_TEXT = "text/"
_PAGES = frozenset({"application/xhtml+xml", "application/rtf"})
# What a page is drawn with.
_DRAWN = ("image/", "font/", "application/font", "application/x-font", "application/vnd.ms-font")
_STYLES = frozenset(
    "text/css text/javascript application/javascript application/x-javascript".split()
)
# Parts that have no text: what proves who wrote a mail, and that it is encrypted.
_FOR_PROGRAMS = frozenset(
    {
        "application/pgp-signature",
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
    }
)
_ENCRYPTED = frozenset(
    {
        "application/pgp-encrypted",
        "application/pkcs7-mime",
        "application/x-pkcs7-mime",
        "multipart/encrypted",
    }
)
_NOTICE = re.compile(r"mime|multi-?+part", re.IGNORECASE)  # for readers of before MIME
_NOTICE_CHARS = 500
_BETWEEN = "\n\n"
_BEFORE = b"\xef\xbb\xbf\r\n"  # a byte order mark and blank lines, which would end the heads
_CUT = "CloseBoundaryNotFoundDefect"
_POLICY = RawHeads()
_COMPARED_CHARS = 500_000
_SHINGLE = 6
_FEW = 0.2
_ADDRESS = re.compile(r"https?+://\S++")


def text_of_mail(raw: bytes) -> ReadText:
    """Return the text of a mail, and the names of its attachments. Raises NoTextError."""
    omitted: list[str] = []
    heads, body = _texts(message_from_bytes(raw.lstrip(_BEFORE), policy=_POLICY), omitted)
    if not body:
        reason = f", but {', '.join(omitted[:3])}" if omitted else ""
        raise NoTextError(f"is a mail without text{reason}; save its attachments and load these")
    return ReadText(_BETWEEN.join(filter(None, (heads, body))), tuple(omitted))


def _texts(message: "Message[str, str]", omitted: list[str], depth: int = 0) -> tuple[str, str]:
    heads = []
    for name in _HEADS:
        text, is_cut = head_text(" / ".join(message.get_all(name, ())))
        heads += [f"{name}: {text}"] if text else []
        omitted += [f"rest of the head {name}"] if is_cut else []
    return "\n".join(heads), _BETWEEN.join(filter(None, _parts(message, omitted, depth)))


def _parts(part: "Message[str, str]", omitted: list[str], depth: int) -> Iterator[str]:
    """Yield the texts of a part; what is not read is added to `omitted`."""
    kind = part.get_content_type()
    if kind in _ENCRYPTED and "signed" not in str(part.get_param("smime-type", "")):
        if not depth:
            raise NoTextError("is an encrypted mail; save a copy that is not")
        omitted.append("encrypted part")
    elif depth > _MAX_DEPTH:
        omitted.append("parts that are nested too deeply")
    elif kind in _MAILS or part.get_content_maintype() == "multipart":
        yield from _inner_texts(part, kind, omitted, depth)
    elif kind in _REPORTS:
        yield _report(part)
    elif _is_text(part):
        yield _text(part, omitted)
    elif kind not in _FOR_PROGRAMS:
        omitted.append(_name(part))


def _is_text(part: "Message[str, str]") -> bool:
    kind = part.get_content_type()
    is_file = part.get_content_disposition() == "attachment"
    return not is_file and (kind.startswith(_TEXT) or kind in _PAGES)


def _inner_texts(
    part: "Message[str, str]", kind: str, omitted: list[str], depth: int
) -> Iterator[str]:
    payload = part.get_payload()
    is_bare = isinstance(payload, str) or not any(inner.keys() for inner in _inner(part))
    if is_bare and is_encoded(part):
        yield from _parts(_decoded_whole(part), omitted, depth + 1)
    elif isinstance(payload, str):  # the boundary that it declares is never used
        yield _text(part, omitted)
    elif kind in _MAILS:
        for inner in _inner(part):
            yield _BETWEEN.join(filter(None, _texts(inner, omitted, depth + 1)))
    else:
        _name_around(part.preamble, "before the first part", omitted)
        if kind == _ALTERNATIVE:
            yield _alternative(part, omitted, depth)
        else:
            for inner in _inner(part):
                if kind != _RELATED or not _is_drawn(inner):
                    yield from _parts(inner, omitted, depth + 1)
        _name_around(part.epilogue, "after the last part", omitted)
        if any(type(defect).__name__ == _CUT for defect in part.defects):
            omitted.append("the end of the mail, which is cut off")


def _decoded_whole(part: "Message[str, str]") -> "Message[str, str]":
    """Return a part whose parts are encoded as a whole, without that encoding."""
    encoded: Message[str, str] = Message(_POLICY)
    encoded[ENCODING] = encoding_of(part)
    payload = part.get_payload()
    if isinstance(payload, str):
        encoded.set_payload(payload)
    else:
        encoded.set_payload("\n".join(inner.as_string() for inner in _inner(part)))
    raw, _ = decoded(encoded)
    kind = part.get("content-type", "").encode("utf-8", "replace")
    return message_from_bytes(b"Content-Type: " + kind + b"\n\n" + raw, policy=_POLICY)


def _name_around(text: str | None, place: str, omitted: list[str]) -> None:
    """Name a text around the parts, unless it is for readers of before MIME."""
    if text and text.strip() and not (len(text) < _NOTICE_CHARS and _NOTICE.search(text)):
        omitted.append(f"text {place}")


def _alternative(part: "Message[str, str]", omitted: list[str], depth: int) -> str:
    """Return the text in plain, or of a page that says more than twice as much.

    A form that says something else follows: they should be the same, and need not be.
    """
    plain = richer = ""
    texts: list[str] = []
    lost: list[str] = []
    for inner in _inner(part):
        text = _BETWEEN.join(filter(None, _parts(inner, lost, depth + 1)))
        texts.append(text)
        if inner.get_content_type() == _PLAIN:
            plain = plain or text
        elif len(text) > len(richer) and inner.get_content_type() != _CALENDAR:
            richer = text
    omitted += dict.fromkeys(lost)
    chosen = richer if len(richer) > 2 * len(plain) else plain
    said = _shingles(chosen)
    others = []
    for text in texts:
        own = _shingles(text)
        if len(own - said) > _FEW * len(own):
            others.append(text)
            said |= own
    return _BETWEEN.join(filter(None, (chosen, *others)))


def _shingles(text: str) -> set[str]:
    """Return the pieces of a text, by which its forms are compared: no signs, no addresses."""
    words = _ADDRESS.sub("", text[:_COMPARED_CHARS].lower())
    letters = "".join(filter(str.isalnum, words))
    return {letters[at : at + _SHINGLE] for at in range(max(1, len(letters) - _SHINGLE + 1))}


def _inner(part: "Message[str, str]") -> Iterator["Message[str, str]"]:
    payload = part.get_payload()
    for inner in payload if isinstance(payload, list) else ():
        if isinstance(inner, Message):
            yield inner


def _is_drawn(part: "Message[str, str]") -> bool:
    """Return whether a part is no more than what a page is drawn with."""
    kind = part.get_content_type()
    is_file = part.get_content_disposition() == "attachment"
    return not is_file and (kind.startswith(_DRAWN) or kind in _STYLES)


def _text(part: "Message[str, str]", omitted: list[str]) -> str:
    """Return the text of a part; a part that cannot be read is named, and the others are read."""
    raw, is_cut = decoded(part)
    try:
        read = part_text(part, raw)
    except NoTextError:
        omitted.append(_name(part))
        return ""
    omitted += read.omitted
    if is_cut:
        omitted.append(f"the end of the {_name(part)}")
    return read.text


def _report(part: "Message[str, str]") -> str:
    """Return what a report says, which consists of heads."""
    blocks = ("\n".join(map(": ".join, inner.raw_items())) for inner in _inner(part))
    return _BETWEEN.join(filter(None, blocks))


def _name(part: "Message[str, str]") -> str:
    name, kind = name_of(part), part.get_content_type()
    if name:
        return f"attachment {name}"
    return f"{'part' if _is_text(part) else 'attachment'} of type {kind}"
