"""Approvals: calls that wait for a person, as the rulings of the authority have them."""

import hashlib
from enum import StrEnum

import msgspec

from sync_core.errors import ValueRefused
from sync_core.rulings import Approval, ApprovalRequest
from sync_core.values import canonical, digest_text

__all__ = ["ApprovalState", "RequestedApproval", "approval_of", "asked", "request_id"]

_ID_CHARS = 16


class ApprovalState(StrEnum):
    """Where a request stands: nothing else than a ruling of the authority moves it."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    USED = "used"


class RequestedApproval(msgspec.Struct, frozen=True):
    """A call for which a person's approval was asked: exactly this tool with exactly these arguments at this step.

    `arguments` is their canonical JSON, None where they were too large to keep; `digest` is what an approval is bound
    to. `device` asked. `by` is the principal whose approval or rejection stands, with a `reason` if one was given.
    """

    id: str
    step: str
    version: int
    tool: str
    arguments: str | None
    digest: str
    device: str
    state: ApprovalState = ApprovalState.WAITING
    by: str = ""
    reason: str = ""

    @property
    def shows_what_it_asks(self) -> bool:
        """Whether the arguments that a person sees are those that an approval would be bound to."""
        return self.arguments is None or digest_text(self.arguments) == self.digest


def request_id(step: str, version: int, tool: str, arguments_digest: str) -> str:
    """Return the id of a request: 16 hex digits that follow from what it asks for, so asking twice is one request."""
    return hashlib.sha256(canonical([step, version, tool, arguments_digest]).encode()).hexdigest()[:_ID_CHARS]


def approval_of(request: RequestedApproval, approved: bool, reason: str) -> Approval:
    """Return a person's yes or no to a request.

    Raises `ValueRefused` for a yes to a request whose shown arguments are not those that it would be bound to.
    """
    if approved and not request.shows_what_it_asks:
        raise ValueRefused(
            f"The arguments that the request {request.id} shows are not those that it asks to approve.",
            hint="Reject it; whoever wrote it shows one call and asks for another.",
        )
    return Approval(request.step, request.version, request.tool, request.digest, approved, reason)


def asked(request: ApprovalRequest, device: str) -> RequestedApproval:
    """Return a request as it stands before anybody ruled on it."""
    digest = request.arguments_digest
    return RequestedApproval(
        request_id(request.step, request.version, request.tool, digest),
        request.step,
        request.version,
        request.tool,
        request.arguments,
        digest,
        device,
    )
