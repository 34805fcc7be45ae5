"""The program of a converting process: one document after another, as the agent sends them."""

import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress

from docllm.agent.documents.conversion.isolation import isolate
from docllm.agent.documents.conversion.protocol import (
    HEAD,
    KINDS,
    MAX_TEXT_BYTES,
    MessageKind,
    said,
    text_to_bytes,
)
from docllm.agent.process.child_process import begin, limit, received
from docllm.schemas.documents.kind import Kind
from docllm.schemas.text.document_text import NoTextError, ReadText

INSTALL = "pip install '.[documents]' in the clone of docllm"


def main(arguments: list[str]) -> None:
    """Convert documents until the agent closes the link."""
    descriptor, memory_mb, cpu_s = map(int, arguments)
    connection = begin(descriptor)
    limit(resource.RLIMIT_DATA, memory_mb << 20)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, 0)  # no conversion writes a file
    isolate()
    connection.sendall(said(MessageKind.READY.value))
    with suppress(OSError):  # the agent is gone
        while head := received(connection, HEAD.size):
            byte, size = HEAD.unpack(head)
            raw = received(connection, size)
            _limit_cpu(cpu_s)
            word, data = _converted(KINDS[byte], raw)
            del raw
            connection.sendall(said(word.value, data))
            if word is MessageKind.WORN:
                return


def _converted(kind: Kind, raw: bytes) -> tuple[MessageKind, bytes]:
    """Return the packed text, or why there is none."""
    try:
        made = converter(kind)(raw)
        data = text_to_bytes(made if isinstance(made, ReadText) else ReadText(made))
    except NoTextError as error:
        reason = str(error)
    except ImportError:
        reason = f"is {kind.value}, which agents read after: {INSTALL}"
    except MemoryError:
        return MessageKind.WORN, b""
    except RecursionError:
        reason = f"is {kind.value} that is nested too deeply to be read"
    except Exception as error:  # noqa: BLE001 - whatever a library raises, its document is at fault
        reason = f"is {kind.value} that its reader cannot read ({type(error).__name__})"
    else:
        size = len(data) - data.index(b"\n") - 1
        if size <= MAX_TEXT_BYTES:
            return MessageKind.TEXT, data
        reason = f"has {size} bytes of text; at most {MAX_TEXT_BYTES} are read"
    return MessageKind.REFUSED, reason.encode("utf-8", "replace")


def converter(kind: Kind) -> Callable[[bytes], ReadText | str]:
    """Return what converts a kind. A process loads no library before a document needs it."""
    match kind:
        case Kind.PDF:
            from docllm.agent.documents.conversion.pdf import text_of_pdf  # noqa: PLC0415

            return text_of_pdf
        case Kind.DOCX:
            from docllm.agent.documents.conversion.docx import text_of_docx  # noqa: PLC0415

            return text_of_docx
        case Kind.HTML:
            from docllm.agent.documents.conversion.html import text_of_html  # noqa: PLC0415

            return text_of_html
        case Kind.RTF:
            from docllm.agent.documents.conversion.rtf import text_of_rtf  # noqa: PLC0415

            return text_of_rtf
        case Kind.MAIL:
            from docllm.agent.documents.conversion.mail import text_of_mail  # noqa: PLC0415

            return text_of_mail
    from docllm.schemas.documents.encoding import decoded_text  # noqa: PLC0415

    return decoded_text


def _limit_cpu(seconds: int) -> None:
    """Let the kernel end this process when a document takes more time of the processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)
