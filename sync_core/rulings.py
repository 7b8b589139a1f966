"""What is said between an endpoint and the authority, as payloads of the task's `authority` stream.

Endpoints ask for an approval in `state` (`ApprovalRequest`) and give one in `authority` (`Approval`); that is all that
they may write there. Rulings are the relay's own: nothing about a guarded call counts that is not in one, and a ruling
that a device brings back after a lost log may close a key, never open one.
"""

from enum import StrEnum

import msgspec

__all__ = [
    "Approval",
    "ApprovalRequest",
    "Approved",
    "Contradicted",
    "Doubted",
    "Granted",
    "Held",
    "Ruling",
    "Settled",
    "SettledBy",
]


class SettledBy(StrEnum):
    """Who said how a guarded call ended: its own holder, the tool's probe, or a person."""

    HOLDER = "holder"
    PROBE = "probe"
    PERSON = "person"


class ApprovalRequest(msgspec.Struct, frozen=True, tag="approval_request", omit_defaults=True):
    """A call waits for a person: exactly this tool with exactly these arguments, at this step of this version.

    `arguments` is their canonical JSON, None if too large to keep: such a request shows its digest only. It claims
    nothing: anybody may ask.
    """

    step: str
    version: int
    tool: str
    arguments_digest: str
    n: int
    arguments: str | None = None


class Approval(msgspec.Struct, frozen=True, tag="approval", omit_defaults=True):
    """A person's yes or no, from the device where it was given; it counts once the relay ruled on it."""

    step: str
    version: int
    tool: str
    arguments_digest: str
    approved: bool
    reason: str = ""


class Approved(msgspec.Struct, frozen=True, tag="approved", omit_defaults=True):
    """The relay took an approval, or a rejection, from this principal, who had the right at that moment."""

    step: str
    version: int
    tool: str
    arguments_digest: str
    approved: bool
    principal: str
    device: str
    reason: str = ""


class Granted(msgspec.Struct, frozen=True, tag="granted", omit_defaults=True):
    """A key was given to one attempt of one device. `token` is its fencing token, higher with each grant of the key.

    `entity` is the business entity whose key it is, as canonical JSON, empty for the key of the call itself;
    `generation` is then that of the entity. `approved_by` used up that principal's approval.
    """

    key: str
    step: str
    version: int
    tool: str
    arguments_digest: str
    attempt: str
    token: int
    principal: str
    device: str
    entity: str = ""
    generation: int = 0
    approved_by: str = ""


class Doubted(msgspec.Struct, frozen=True, tag="doubted", omit_defaults=True):
    """Nobody knows whether this attempt's effect happened: its lease ended, its tool raised, or its log was lost."""

    key: str
    step: str
    version: int
    attempt: str
    token: int
    reason: str


class Settled(msgspec.Struct, frozen=True, tag="settled", omit_defaults=True):
    """How an attempt ended. `result` is canonical JSON; None with `happened` means that it is in the entry's blob, or
    that nobody knows it. `retired`: it did not happen, and the key will not be granted again."""

    key: str
    step: str
    version: int
    attempt: str
    token: int
    happened: bool
    by: SettledBy
    principal: str
    device: str
    result: str | None = None
    error: str | None = None
    label: str = ""
    retired: bool = False


class Contradicted(msgspec.Struct, frozen=True, tag="contradicted", omit_defaults=True):
    """A stale holder reported something else than the verdict that stands; the verdict stands, this is shown."""

    key: str
    step: str
    version: int
    attempt: str
    token: int
    happened: bool
    device: str
    result: str | None = None
    error: str | None = None


class Held(msgspec.Struct, frozen=True, tag="held", omit_defaults=True):
    """A slot is held by the authority from here on, with this value (canonical JSON), or None while it has none."""

    slot: str
    principal: str
    device: str
    value: str | None = None


Ruling = Approved | Granted | Doubted | Settled | Contradicted | Held
