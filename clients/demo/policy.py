"""The travel policy: limits per category, fields that a claim needs, and what a cost centre looks like."""

import tomllib
from decimal import Decimal
from pathlib import Path

import msgspec

from clients.demo.invoice import Invoice, InvoiceLine
from sync_core.errors import ValueRefused

__all__ = [
    "CategoryLimit",
    "CostCenterRule",
    "PolicyCheck",
    "TravelPolicy",
    "check_invoice",
    "claim_values",
    "load_policy",
]


class CategoryLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lines whose description holds one of `words` may cost at most `limit`, net, per unit."""

    words: tuple[str, ...]
    limit: Decimal


class CostCenterRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the user is asked for the cost centre, and the pattern that an answer must match."""

    ask: str
    pattern: str


class TravelPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy file; `needed` names the slots that a claim must hold."""

    currency: str
    needed: tuple[str, ...]
    cost_center: CostCenterRule
    category: dict[str, CategoryLimit]


class PolicyCheck(msgspec.Struct, frozen=True):
    """What the policy says of an invoice.

    `findings` has a sentence for each line of the invoice and each breach, `missing` the needed fields that the
    invoice does not answer.
    """

    within_limits: bool
    findings: tuple[str, ...]
    missing: tuple[str, ...]


def load_policy(path: Path) -> TravelPolicy:
    """Return the policy in a TOML file; raises `ValueRefused` if it cannot be read or a field is wrong."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), TravelPolicy)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueRefused(f"The policy file {path.name} is not usable: {error}.", hint="Correct the file.") from error


def check_invoice(invoice: Invoice, policy: TravelPolicy) -> PolicyCheck:
    """Return what the policy says of the invoice; a line that fits no category is a breach."""
    checked = [_check_line(line, policy) for line in invoice.lines]
    if invoice.currency != policy.currency:
        checked.append((False, f"The invoice is in {invoice.currency}, the policy in {policy.currency}."))
    answered = claim_values(invoice)
    return PolicyCheck(
        within_limits=all(fits for fits, _ in checked),
        findings=tuple(sentence for _, sentence in checked),
        missing=tuple(name for name in policy.needed if name not in answered),
    )


def claim_values(invoice: Invoice) -> dict[str, str | Decimal]:
    """Return the values that an invoice gives to a claim, by slot."""
    return {
        "supplier": invoice.supplier,
        "invoice_number": invoice.invoice_number,
        "invoice_date": invoice.invoice_date,
        "amount": invoice.total,
        "currency": invoice.currency,
    }


def _check_line(line: InvoiceLine, policy: TravelPolicy) -> tuple[bool, str]:
    description = line.description.lower()
    for name, category in policy.category.items():
        if any(word in description for word in category.words):
            fits = line.unit_price <= category.limit
            relation = "within" if fits else "above"
            return (
                fits,
                f"{line.description}: {line.unit_price} is {relation} the limit of {category.limit} for {name}.",
            )
    return False, f"{line.description}: no category of the policy covers this."
