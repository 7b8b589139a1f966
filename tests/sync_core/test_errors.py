"""The tree of errors: each has a code, a status and a sentence, and the drawing at its top is the tree."""

import inspect
import re

import pytest

from sync_core import errors
from sync_core.errors import (
    AlreadyDone,
    HistoryTrimmed,
    KeyReused,
    PreconditionFailed,
    SegueError,
    StoreInUse,
    SyncTimeout,
)

LEAVES = [one for one in vars(errors).values() if inspect.isclass(one) and one.__module__ == errors.__name__]
LEAVES.remove(SegueError)

FIELDS: dict[type[SegueError], dict[str, object]] = {
    PreconditionFailed: {"current_text": "the newer text", "current_sha256": "0" * 64},
    KeyReused: {"recorded_digest": "a", "given_digest": "b"},
    StoreInUse: {"owner_pid": 17},
    HistoryTrimmed: {"earliest": 12},
    AlreadyDone: {"task": "trip", "step": "book"},
}


def make(error: type[SegueError], sentence: str = "It did not work.", **more: object) -> SegueError:
    return error(sentence, **FIELDS.get(error, {}), **more)  # type: ignore[arg-type]


def drawn() -> dict[str, int]:
    tree = inspect.getdoc(errors) or ""
    return {name: int(status) for name, status in re.findall(r"[├└]── (\w+) (\d{3})", tree)}


def test_the_drawing_matches_the_classes() -> None:
    assert drawn() == {error.__name__: error.status for error in LEAVES}


def test_the_exports_are_the_classes() -> None:
    assert errors.__all__ == sorted(errors.__all__)
    assert set(errors.__all__) == {error.__name__ for error in LEAVES} | {"SegueError"}


@pytest.mark.parametrize("error", LEAVES, ids=lambda error: error.__name__)
def test_every_error_has_a_code_a_status_a_sentence_and_a_docstring_of_its_own(error: type[SegueError]) -> None:
    assert issubclass(error, SegueError)
    assert {"code", "status", "__doc__"} <= set(vars(error))
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)
    assert 400 <= error.status <= 599
    raised = make(error)
    assert raised.sentence == "It did not work."
    assert raised.hint == error.default_hint
    assert str(raised) == f"It did not work. {raised.hint}".strip()
    assert make(error, hint="Do this.").hint == "Do this."


def test_codes_are_distinct() -> None:
    assert len({error.code for error in LEAVES}) == len(LEAVES)


@pytest.mark.parametrize("error", LEAVES, ids=lambda error: error.__name__)
def test_an_error_as_json_has_four_fields(error: type[SegueError]) -> None:
    raised = make(error)
    assert raised.as_json() == {
        "code": error.code,
        "status": error.status,
        "sentence": raised.sentence,
        "hint": raised.hint,
    }


def test_hints_and_sentences_are_sentences() -> None:
    for error in LEAVES:
        assert error.default_hint == "" or error.default_hint.endswith(".")


def test_the_text_that_a_stale_writer_must_merge_with_is_in_a_field_and_nowhere_else() -> None:
    raised = make(PreconditionFailed)
    assert isinstance(raised, PreconditionFailed)
    assert raised.current_text == "the newer text"
    assert (raised.code, raised.status) == ("memory_precondition_failed_error", 409)
    assert "newer text" not in str(raised) + repr(raised) + str(raised.as_json())


def test_a_key_reused_shows_both_digests_and_a_store_in_use_its_owner() -> None:
    reused, in_use = make(KeyReused), make(StoreInUse)
    assert isinstance(reused, KeyReused)
    assert isinstance(in_use, StoreInUse)
    assert (reused.recorded_digest, reused.given_digest) == ("a", "b")
    assert in_use.owner_pid == 17


def test_a_sync_timeout_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        raise SyncTimeout("Not everything was stored.")
