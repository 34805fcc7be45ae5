"""Makes PDF invoices to practise on: a few with text, and one that is only a picture."""

from pathlib import Path

FOLDER = Path("invoices")
SELLERS = ("Ada's Lamps", "Brown & Sons", "Clockwork Ltd")


def pdf(content: str) -> bytes:
    """Return a PDF of one page that draws this."""
    stream = content.encode("latin-1")
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R "
            b"/Resources << /Font << /F1 4 0 R >> >> >>"
        ),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
    )
    written, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 6\n0000000000 65535 f \n" + table
    end = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(written)
    return written + head + end


def invoice(number: int) -> str:
    """Return the drawing of an invoice."""
    seller, total = SELLERS[number % len(SELLERS)], 120 * number + 99
    lines = (
        seller,
        f"Invoice {1000 + number}",
        f"Date: 2026-03-{number:02}",
        f"Total: {total}.00 EUR",
    )
    return "BT /F1 14 Tf 20 TL 70 760 Td " + " ".join(f"({line}) Tj T*" for line in lines) + " ET"


FOLDER.mkdir(exist_ok=True)
for number in range(1, 6):
    (FOLDER / f"invoice-{number}.pdf").write_bytes(pdf(invoice(number)))
(FOLDER / "scan.pdf").write_bytes(pdf("0.8 g 70 600 400 150 re f"))
