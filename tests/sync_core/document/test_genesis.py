"""The genesis update: equal bytes everywhere, and what pycrdt itself would write."""

from pycrdt import Doc, Map

from sync_core.document.genesis import document_id, genesis_update
from sync_core.ids import GENESIS_WRITER
from tests.sync_core.document.log import SUBJECT, TASK, devices


def test_the_genesis_is_what_pycrdt_writes_for_the_two_keys_of_meta() -> None:
    doc: Doc[Map[str]] = Doc(client_id=GENESIS_WRITER)
    meta = doc.get("meta", type=Map)
    with doc.transaction():
        meta["document"] = document_id(SUBJECT, TASK)
        meta["schema"] = "1"
    assert genesis_update(SUBJECT, TASK) == doc.get_update()


def test_the_genesis_follows_from_subject_and_task_alone() -> None:
    assert genesis_update("a", "b") == genesis_update("a", "b")
    assert len({genesis_update("a", "b/c"), genesis_update("a", "b"), genesis_update("ab", "c")}) == 3


def test_two_fresh_documents_of_a_task_hold_equal_bytes() -> None:
    _, (a, b) = devices("a", "b")
    assert a.document.state_bytes() == b.document.state_bytes() == genesis_update(SUBJECT, TASK)
