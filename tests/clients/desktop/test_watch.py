"""What a watch prints of a change that has to do with a person's approval."""

from clients.desktop.watch import _document, _text
from sync_core.document.approvals import ApprovalState, RequestedApproval
from sync_core.replica.changes import ApprovalChanged


def test_an_approval_is_told_as_a_line_and_as_the_document_that_approvals_prints() -> None:
    request = RequestedApproval("r1", "pay", 1, "pay", "{}", "d" * 64, "pc", ApprovalState.APPROVED, "boss")
    change = ApprovalChanged("expense/TRIP-118", request, False)
    assert _text(change, None) == "approval r1 for step pay is approved (elsewhere)"  # type: ignore[arg-type]
    document = _document(change)
    assert isinstance(document, dict)
    assert (document["type"], document["request"], document["state"], document["by"]) == (
        "approval",
        "r1",
        "approved",
        "boss",
    )
