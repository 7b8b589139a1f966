"""Text differences: few edits, exact, and in time whatever the texts are."""

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sync_core.document.diff import Edit, apply_edits, diff, rebase, split_lines, to_utf8
from sync_core.limits import DIFF_EDITS_MAX

WORDS = [
    "agent",
    "read",
    "file",
    "found",
    "that",
    "test",
    "fails",
    "when",
    "queue",
    "is",
    "empty",
    "déjà",
    "😀",
    "größe",
]


def note(rng: random.Random, chars: int) -> str:
    lines: list[str] = []
    while sum(map(len, lines)) < chars:
        lines.append(" ".join(rng.choices(WORDS, k=rng.randint(2, 12))) + f" #{rng.randint(0, 9999)}\n")
    return "".join(lines)


texts = st.text(alphabet="ab\n c😀é", max_size=60)


@given(texts, texts)
@settings(max_examples=500, deadline=None, database=None)
def test_the_edits_turn_one_text_into_the_other(old: str, new: str) -> None:
    edits = diff(old, new)
    assert apply_edits(old, edits) == new
    assert all(edit.start <= edit.end for edit in edits)
    assert all(before.end <= after.start for before, after in itertools.pairwise(edits))


@given(texts, texts)
@settings(max_examples=300, deadline=None, database=None)
def test_utf8_offsets_name_the_same_places(old: str, new: str) -> None:
    edits = diff(old, new)
    data = old.encode()
    for edit in reversed(to_utf8(old, edits)):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    assert data.decode() == new


def test_equal_texts_need_no_edit() -> None:
    assert diff("a\nb\n", "a\nb\n") == []


def test_an_added_line_is_one_insertion() -> None:
    assert diff("a\nc\n", "a\nb\nc\n") == [Edit(2, 2, "b\n")]


def test_a_changed_word_is_one_word() -> None:
    old = "the total is 100 euro today\n"
    assert diff(old, old.replace("100", "250")) == [Edit(13, 16, "250")]


def test_lines_that_are_not_alike_are_replaced_whole() -> None:
    assert diff("a b c d\n", "w x y z\n") == [Edit(0, 8, "w x y z\n")]


def test_only_a_line_feed_ends_a_line() -> None:
    assert split_lines("a\r\nb\x0bc\u2028d\n\ne") == ["a\r\n", "b\x0bc\u2028d\n", "\n", "e"]


def test_a_moved_block_keeps_the_rest_in_place() -> None:
    rng = random.Random(3)
    lines = split_lines(note(rng, 4_000))
    old, new = "".join(lines), "".join(lines[5:] + lines[:5])
    edits = diff(old, new)
    assert apply_edits(old, edits) == new
    assert sum(edit.end - edit.start for edit in edits) <= 2 * len("".join(lines[:5]))


@pytest.mark.parametrize("every", [1, 2])
def test_there_are_never_more_edits_than_the_bound(every: int) -> None:
    lines = [f"line {i} of the long note\n" for i in range(3_000)]
    changed = [line.replace("long", "short") if i % (2 * every) else line for i, line in enumerate(lines)]
    edits = diff("".join(lines), "".join(changed))
    assert len(edits) == DIFF_EDITS_MAX
    assert apply_edits("".join(lines), edits) == "".join(changed)


def hard_texts() -> list[tuple[str, str]]:
    rng = random.Random(1)
    shapes = ["\n" * 130_000, "same line\n" * 13_000, "word " * 26_000, "a" * 130_000, "ab\n" * 43_000]
    shapes.append("".join("\n" if rng.random() < 0.5 else f"line {rng.randint(0, 99)}\n" for _ in range(20_000)))
    shapes.append(note(rng, 128 * 1024))
    pairs = []
    for text in shapes:
        lines = split_lines(text)
        for _ in range(max(1, len(lines) // 50)):
            lines.insert(rng.randrange(len(lines) + 1), f"new {rng.random()}\n")
        pairs += [(text, "".join(lines)), (text, text[::-1]), (text, note(rng, len(text)))]
    return pairs


def test_no_text_of_the_largest_size_takes_long() -> None:
    for old, new in hard_texts():
        start = time.process_time()
        edits = diff(old, new)
        assert time.process_time() - start < 2.5
        assert apply_edits(old, edits) == new


# --- rebase -----------------------------------------------------------------------------------------------------------


def test_edits_move_with_what_others_inserted() -> None:
    old = "one\ntwo\nthree\n"
    edits = diff(old, "one\nTWO\nthree\nfour\n")
    present = "zero\none\ntwo\nthree\n"
    assert apply_edits(present, rebase(edits, old, present)) == "zero\none\nTWO\nthree\nfour\n"


def test_what_others_inserted_into_a_deleted_stretch_stays() -> None:
    old = "one\ntwo\nthree\n"
    present = "one\ntwo\nnew\nthree\n"
    assert apply_edits(present, rebase(diff(old, ""), old, present)) == "new\n"


def test_an_edit_of_what_others_deleted_keeps_its_insertion() -> None:
    old = "one\ntwo\nthree\n"
    edits = diff(old, "one\ntwo\nmine\nthree\n")
    assert apply_edits("three\n", rebase(edits, old, "three\n")) == "mine\nthree\n"


@given(texts, texts, texts)
@settings(max_examples=300, deadline=None, database=None)
def test_rebased_edits_are_in_order_and_keep_all_insertions(old: str, mine: str, present: str) -> None:
    edits = rebase(diff(old, mine), old, present)
    assert all(before.end <= after.start for before, after in itertools.pairwise(edits))
    assert "".join(edit.text for edit in edits) == "".join(edit.text for edit in diff(old, mine))
    assert all(0 <= edit.start <= edit.end <= len(present) for edit in edits)


def test_rebasing_onto_the_same_text_changes_nothing() -> None:
    rng = random.Random(4)
    old, new = note(rng, 500), note(rng, 500)
    assert apply_edits(old, rebase(diff(old, new), old, old)) == new
