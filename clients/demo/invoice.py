"""Reads an invoice from a PDF: the text by pypdf, the fields by the labels printed beside them."""

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
from pypdf import PdfReader
from pypdf.errors import PyPdfError

from sync_core.errors import ValueRefused

__all__ = ["Invoice", "InvoiceLine", "VatLine", "parse_invoice", "read_invoice_file"]

_MONEY = r"(?P<currency>[A-Z]{3}) (?P<amount>\d+(?:,\d{3})*\.\d{2})"
_GAP = re.compile(r"\s{2,}")
_COLUMNS = ["Description", "Quantity", "Unit price", "VAT", "Net"]


class InvoiceLine(msgspec.Struct, frozen=True):
    """One line of the invoice's table; `unit_price` and `net` are without VAT, in the invoice's currency."""

    description: str
    quantity: int
    unit_price: Decimal
    vat_percent: int
    net: Decimal


class VatLine(msgspec.Struct, frozen=True):
    """The VAT of one rate: `amount` is due on the net sum `net`."""

    percent: int
    net: Decimal
    amount: Decimal


class Invoice(msgspec.Struct, frozen=True):
    """What the demo needs of an invoice; `total` includes VAT, `invoice_date` is ISO 8601."""

    supplier: str
    invoice_number: str
    invoice_date: str
    currency: str
    lines: tuple[InvoiceLine, ...]
    vat: tuple[VatLine, ...]
    net: Decimal
    total: Decimal


def read_invoice_file(path: Path) -> Invoice:
    """Return the invoice printed in a PDF file.

    Raises `ValueRefused` if the file is no readable PDF, a label is missing, or the sums do not add up.
    """
    try:
        pages = [page.extract_text(extraction_mode="layout") for page in PdfReader(path).pages]
    except (OSError, PyPdfError) as error:
        raise ValueRefused(f"{path.name} is no PDF that can be read.", hint="Give the path of an invoice.") from error
    return parse_invoice("\n".join(pages))


def parse_invoice(text: str) -> Invoice:
    """Return the invoice in a text that keeps the page's layout: a label and its value stand on one line.

    Raises `ValueRefused`, naming the label, if one is missing or malformed, or if the sums do not add up.
    """
    net_currency, net = _money(text, "Net amount")
    currency, total = _money(text, "Total due")
    invoice = Invoice(
        supplier=_supplier(text),
        invoice_number=_labelled(text, "Invoice number", r"(\S+)"),
        invoice_date=_day(_labelled(text, "Invoice date", r"(\d{1,2} [A-Z][a-z]+ \d{4})")).isoformat(),
        currency=currency,
        lines=_lines(text),
        vat=_vat(text),
        net=net,
        total=total,
    )
    if net_currency != currency:
        raise ValueRefused("The invoice names two currencies.", hint="Read it by eye.")
    _check_sums(invoice)
    return invoice


def _labelled(text: str, label: str, value: str) -> str:
    found = re.search(rf"{re.escape(label)}:[ \t]+{value}", text)
    if found is None:
        raise ValueRefused(f"The invoice has no readable «{label}».", hint="Check that it is a text PDF in English.")
    return found.group(1)


def _money(text: str, label: str) -> tuple[str, Decimal]:
    found = re.search(rf"{re.escape(label)}:[ \t]+{_MONEY}", text)
    if found is None:
        raise ValueRefused(f"The invoice has no readable «{label}».", hint="Check that it is a text PDF in English.")
    return found["currency"], _amount(found["amount"])


def _amount(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))


def _day(text: str) -> date:
    try:
        return datetime.strptime(text, "%d %B %Y").date()
    except ValueError:
        raise ValueRefused("The invoice's date is no date.", hint="It should read like 5 November 2026.") from None


def _supplier(text: str) -> str:
    """The letterhead: what stands before the word INVOICE on the page's first line."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    name, _, rest = first.rpartition("INVOICE")
    if rest.strip() or not name.strip():
        raise ValueRefused("The invoice has no readable letterhead.", hint="Check that the file is an invoice.")
    return name.strip()


def _lines(text: str) -> tuple[InvoiceLine, ...]:
    """The rows below the table's heading, up to the first row that has other columns."""
    rows = [_GAP.split(line.strip()) for line in text.splitlines() if line.strip()]
    heads = [index for index, row in enumerate(rows) if len(row) == 5 and _is_heading(row)]
    if not heads:
        raise ValueRefused("The invoice has no readable table of lines.", hint="Check that the file is an invoice.")
    found: list[InvoiceLine] = []
    for row in rows[heads[0] + 1 :]:
        if len(row) != 5:
            break
        found.append(_line(row))
    return tuple(found)


def _is_heading(row: list[str]) -> bool:
    return all(cell.startswith(name) for cell, name in zip(row, _COLUMNS, strict=True))


def _line(row: list[str]) -> InvoiceLine:
    description, quantity, unit_price, vat, net = row
    numbers = rf"\d+ {_amount_pattern()} \d+% {_amount_pattern()}"
    if not re.fullmatch(numbers, " ".join(row[1:])):
        raise ValueRefused("A line of the invoice's table is not readable.", hint="Read it by eye.")
    return InvoiceLine(description, int(quantity), _amount(unit_price), int(vat[:-1]), _amount(net))


def _amount_pattern() -> str:
    return r"\d+(?:,\d{3})*\.\d{2}"


def _vat(text: str) -> tuple[VatLine, ...]:
    pattern = rf"VAT (\d+)% on ({_amount_pattern()}):[ \t]+[A-Z]{{3}} ({_amount_pattern()})"
    return tuple(
        VatLine(int(percent), _amount(net), _amount(amount)) for percent, net, amount in re.findall(pattern, text)
    )


def _check_sums(invoice: Invoice) -> None:
    """A parser that took the wrong number would show here."""
    lines_fit = all(line.quantity * line.unit_price == line.net for line in invoice.lines)
    net_fits = sum(line.net for line in invoice.lines) == invoice.net
    total_fits = invoice.net + sum(vat.amount for vat in invoice.vat) == invoice.total
    if not (lines_fit and net_fits and total_fits):
        raise ValueRefused("The sums of the invoice do not add up.", hint="Read it by eye.")
