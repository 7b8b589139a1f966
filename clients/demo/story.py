"""What the demo's story is about: names, places and the texts that the scripted people type."""

from pathlib import Path
from typing import Literal

import msgspec

__all__ = [
    "CLAIM_SLOTS",
    "COST_CENTER",
    "DESKTOP",
    "INVOICE_FILE",
    "INVOICE_STEP",
    "PHONE",
    "POLICY_FILE",
    "POLICY_STEP",
    "RELAY",
    "SHIPPED",
    "SUBJECT",
    "TASK",
    "WORKLOG",
    "Breakage",
    "DemoFiles",
]

SUBJECT = "acme"
TASK = "expense/TRIP-118"
PHONE = "phone"
DESKTOP = "desktop"
RELAY = "relay"

SHIPPED = Path(__file__).parent
"""Where the demo's input lies. Tools take a file's name inside it, so that a call has the same arguments anywhere."""
INVOICE_FILE = "invoice.pdf"
POLICY_FILE = "travel_policy.toml"

INVOICE_STEP = "invoice"
POLICY_STEP = "policy"
WORKLOG = "worklog"
COST_CENTER = "cost_center"

CLAIM_SLOTS = {
    "supplier": "Who wrote the invoice?",
    "invoice_number": "Which number does the invoice have?",
    "invoice_date": "Of which day is the invoice?",
    "amount": "How much is claimed, VAT included?",
    "currency": "In which currency?",
}
"""The slots that the invoice answers, with what a person would be asked; the policy names the cost centre's own ask."""

Breakage = Literal["rerun", "lose-note"]
"""A fault that is planted to see that the figures show it."""


class DemoFiles(msgspec.Struct, frozen=True):
    """The files of one run, all in one folder."""

    folder: Path

    def store(self, device: str) -> Path:
        """The SQLite file of a device or of the relay."""
        return self.folder / f"{device}.db"

    def transcript(self, device: str) -> Path:
        return self.folder / f"{device}.transcript.jsonl"

    def errors(self, process: str) -> Path:
        """What a process wrote to its standard error."""
        return self.folder / f"{process}.stderr.txt"

    @property
    def executions(self) -> Path:
        return self.folder / "executions.jsonl"

    @property
    def picture(self) -> Path:
        return self.folder / "trip-118.svg"
