"""Notes: hashes, whole-text writes, three-way merges; no line lost, every edit kept."""

import random
import re

import pytest

from sync_core.document.diff import split_lines
from sync_core.document.notes import make_note, overlap
from sync_core.errors import BaseUnknown, PreconditionFailed, TooLarge, ValueRefused
from sync_core.ids import new_writer
from sync_core.limits import NOTE_BYTES_MAX
from tests.sync_core.document.log import Device, assert_converged, devices, sync

WORDS = ["agent", "file", "test", "queue", "empty", "next", "step", "déjà", "😀", "report"]


def write(device: Device, text: str, content_sha256: str | None = None) -> bytes:
    return device.update(device.document.write_note("worklog", text, content_sha256))


def text_of(device: Device) -> str:
    return device.document.note("worklog").text


def sha_of(device: Device) -> str:
    return device.document.note("worklog").content_sha256


def merge(device: Device, text: str, base_sha256: str, state: bytes) -> tuple[str, ...]:
    scratch = new_writer(device.rng.randbytes)
    made = device.document.merge_note("worklog", text, base_sha256, state, scratch)
    device.update(made.update, writer=made.writer)
    return made.overlap


# --- one device -------------------------------------------------------------------------------------------------------


def test_a_note_that_was_never_written_is_empty() -> None:
    _, (phone,) = devices("phone")
    assert phone.document.note("worklog") == make_note("worklog", "")
    assert phone.document.view().notes == {}


def test_a_note_may_not_be_named_handover() -> None:
    _, (phone,) = devices("phone")
    for name in ("handover", "a/b", ""):
        with pytest.raises(ValueRefused):
            phone.document.write_note(name, "x", None)


@pytest.mark.parametrize("text", ["plain\n", "größe 🙂 e\u0301\r\n", "\x00\x01", "no line feed"])
def test_a_text_comes_back_exactly(text: str) -> None:
    _, (phone, pc) = devices("phone", "pc")
    write(phone, text)
    write(phone, text + text, sha_of(phone))
    sync(phone, pc)
    assert text_of(pc) == text + text
    assert_converged(phone, pc)


def test_edits_of_wide_characters_fall_on_the_right_places() -> None:
    _, (phone, pc) = devices("phone", "pc")
    rng = random.Random(2)
    text = ""
    for _ in range(200):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(["a", "é", "😀", "\n", "漢字 "]) + text[rng.randint(at, min(len(text), at + 2)) :]
        write(phone, text, sha_of(phone))
        assert text_of(phone) == text
    sync(phone, pc)
    assert_converged(phone, pc)


def test_a_new_note_needs_no_hash_and_an_old_one_does() -> None:
    _, (phone,) = devices("phone")
    write(phone, "a\n")
    with pytest.raises(PreconditionFailed):
        write(phone, "b\n")
    with pytest.raises(PreconditionFailed):
        phone.document.write_note("other", "b\n", "0" * 64)
    phone.document.write_note("other", "b\n", make_note("other", "").content_sha256)


def test_a_stale_hash_carries_the_current_text_and_leaves_it_intact() -> None:
    _, (phone,) = devices("phone")
    write(phone, "a\n")
    stale = sha_of(phone)
    write(phone, "b\n", stale)
    with pytest.raises(PreconditionFailed) as caught:
        write(phone, "c\n", stale)
    assert caught.value.code == "memory_precondition_failed_error"
    assert caught.value.status == 409
    assert (caught.value.current_text, caught.value.current_sha256) == ("b\n", sha_of(phone))
    assert "b\n" not in str(caught.value)
    assert text_of(phone) == "b\n"


def test_ac_16_the_same_content_with_a_stale_hash_succeeds_and_writes_nothing() -> None:
    _, (phone,) = devices("phone")
    write(phone, "a\n")
    stale = sha_of(phone)
    assert write(phone, "b\n", stale)
    assert write(phone, "b\n", stale) == b""
    assert write(phone, "b\n", None) == b""


def test_edit_replaces_the_one_place_where_a_text_stands() -> None:
    _, (phone,) = devices("phone")
    write(phone, "one two two\n")
    phone.document.edit_note("worklog", "one", "eins")
    assert text_of(phone) == "eins two two\n"
    for old in ("two", "three", "", "TWO"):
        with pytest.raises(ValueRefused) as caught:
            phone.document.edit_note("worklog", old, "x")
        assert "two two" not in str(caught.value)
    assert text_of(phone) == "eins two two\n"


def test_append_adds_behind_and_two_appends_apart_both_stay_whole() -> None:
    _, (phone, pc) = devices("phone", "pc")
    write(phone, "start\n")
    sync(phone, pc)
    phone.update(phone.document.append_note("worklog", "from the phone\n"))
    pc.update(pc.document.append_note("worklog", "from the pc\n"))
    sync(phone, pc)
    assert_converged(phone, pc)
    assert sorted(split_lines(text_of(phone))[1:]) == ["from the pc\n", "from the phone\n"]
    assert phone.document.append_note("worklog", "") == b""


def test_delete_needs_the_hash_and_takes_the_note_away() -> None:
    _, (phone, pc) = devices("phone", "pc")
    write(phone, "a\n")
    with pytest.raises(PreconditionFailed):
        phone.document.delete_note("worklog", "0" * 64)
    phone.update(phone.document.delete_note("worklog", sha_of(phone)))
    assert phone.document.delete_note("worklog", sha_of(phone)) == b""
    sync(phone, pc)
    assert phone.document.view().notes == pc.document.view().notes == {}
    write(phone, "again\n")
    sync(phone, pc)
    assert text_of(pc) == "again\n"


def test_a_note_over_the_bound_is_refused_and_nothing_changes() -> None:
    _, (phone,) = devices("phone")
    write(phone, "é" * (NOTE_BYTES_MAX // 2))
    for action in (
        lambda: phone.document.append_note("worklog", "x"),
        lambda: phone.document.write_note("worklog", "é" * (NOTE_BYTES_MAX // 2 + 1), sha_of(phone)),
        lambda: phone.document.write_note("other", "é" * (NOTE_BYTES_MAX // 2 + 1), None),
    ):
        with pytest.raises(TooLarge):
            action()
    assert text_of(phone) == "é" * (NOTE_BYTES_MAX // 2)


def test_a_lone_surrogate_is_refused() -> None:
    _, (phone,) = devices("phone")
    with pytest.raises(ValueRefused):
        phone.document.write_note("worklog", "\ud800", None)


# --- merging ----------------------------------------------------------------------------------------------------------


def test_ac_15_a_write_from_a_stale_text_fails_then_merges_and_both_lines_are_there() -> None:
    _, (a, b) = devices("a", "b")
    write(a, "start\n")
    sync(a, b)
    base, state = sha_of(b), b.document.base_state()
    write(a, "start\nfrom a\n", sha_of(a))
    sync(a, b)
    with pytest.raises(PreconditionFailed) as caught:
        write(b, "start\nfrom b\n", base)
    assert caught.value.current_text == "start\nfrom a\n"
    assert merge(b, "start\nfrom b\n", base, state) == ()
    sync(a, b)
    assert_converged(a, b)
    assert sorted(split_lines(text_of(a))) == ["from a\n", "from b\n", "start\n"]


def test_a_merge_whose_base_is_current_writes_with_the_live_id() -> None:
    _, (a,) = devices("a")
    write(a, "start\n")
    made = a.document.merge_note("worklog", "start\nmore\n", sha_of(a), a.document.base_state(), 2**40)
    assert made.writer == a.document.writer
    assert text_of(a) == "start\nmore\n"


def test_a_merge_beside_newer_work_writes_under_its_own_id_and_passes_the_guard() -> None:
    _, (a, b) = devices("a", "b")
    write(a, "start\n")
    base, state = sha_of(a), a.document.base_state()
    write(a, "start\nnewer\n", base)
    made = a.document.merge_note("worklog", "start\nolder\n", base, state, 2**40)
    assert made.writer == 2**40
    a.update(made.update, writer=made.writer)
    sync(a, b)
    assert_converged(a, b)
    assert sorted(split_lines(text_of(b))) == ["newer\n", "older\n", "start\n"]


def test_a_merge_that_changes_nothing_writes_nothing() -> None:
    _, (a,) = devices("a")
    write(a, "start\n")
    base, state = sha_of(a), a.document.base_state()
    write(a, "start\nnewer\n", base)
    assert a.document.merge_note("worklog", "start\n", base, state, 2**40).update == b""
    assert a.document.merge_note("worklog", "start\nnewer\n", "0" * 64, b"", 2**40).update == b""
    assert text_of(a) == "start\nnewer\n"


@pytest.mark.parametrize("state", [b"", b"nonsense", b"\x00\x00"])
def test_a_base_that_is_not_known_is_refused_and_nothing_changes(state: bytes) -> None:
    _, (a,) = devices("a")
    write(a, "start\n")
    base = sha_of(a)
    write(a, "start\nnewer\n", base)
    with pytest.raises(BaseUnknown):
        a.document.merge_note("worklog", "start\nolder\n", base, state, 2**40)
    assert text_of(a) == "start\nnewer\n"


def test_a_base_that_holds_what_the_document_lost_is_unknown() -> None:
    _, (a,) = devices("a")
    write(a, "start\n")
    base, state = sha_of(a), a.document.base_state()
    rebuilt = a.fresh_document()
    rebuilt.write_note("worklog", "other\n", None)
    with pytest.raises(BaseUnknown):
        rebuilt.merge_note("worklog", "start\nmine\n", base, state, 2**40)


def test_a_merge_that_would_exceed_the_bound_is_refused_and_nothing_changes() -> None:
    _, (a,) = devices("a")
    half = NOTE_BYTES_MAX // 2
    write(a, "start\n")
    base, state = sha_of(a), a.document.base_state()
    write(a, "start\n" + "x" * half, base)
    before = a.document.state_bytes()
    with pytest.raises(TooLarge):
        a.document.merge_note("worklog", "y" * half + "start\n", base, state, 2**40)
    assert a.document.state_bytes() == before


def test_both_ends_changing_one_line_is_reported() -> None:
    _, (a, b) = devices("a", "b")
    write(a, "total 100 euro\nother line\n")
    sync(a, b)
    base, state = sha_of(b), b.document.base_state()
    write(a, "total 120 euro\nother line\n", sha_of(a))
    sync(a, b)
    assert merge(b, "total 150 euro\nother line, longer\n", base, state) == ("total 100 euro",)


def test_overlap_names_lines_that_both_changed_and_no_others() -> None:
    base = "one a b\ntwo a b\nthree a b\n"
    assert overlap(base, base, base) == ()
    assert overlap(base, "one a X\ntwo a b\nthree a b\n", "one a b\ntwo a b\nthree a Y\n") == ()
    assert overlap(base, "one a X\ntwo a b\nthree a b\n", "one Y b\ntwo a b\nthree a b\n") == ("one a b",)
    assert overlap(base, "two a b\nthree a b\n", "one Y b\ntwo a b\nthree a b\n") == ("one a b",)
    assert overlap(base, "one X a b\ntwo a b\nthree a b\n", "one a b Y\ntwo a b\nthree a b\n") == ("one a b",)
    assert overlap(base, "new\n" + base, "other\n" + base) == ()
    assert overlap(base, "", "") == ("one a b", "two a b", "three a b")


def change(rng: random.Random, text: str, tag: str) -> str:
    """Insert, extend and delete some lines; what was added carries a tag."""
    lines = split_lines(text)
    for k in range(rng.randint(1, 3)):
        kind, at = rng.random(), rng.randrange(len(lines) + 1)
        if kind < 0.5 or at == len(lines):
            lines.insert(at, f"NEW-{tag}-{k}\n")
        elif kind < 0.8:
            lines[at] = lines[at].rstrip("\n") + f" EDIT-{tag}-{k}\n"
        elif len(lines) > 2:
            del lines[at]
    return "".join(lines)


def test_of_400_random_merges_none_loses_a_line_or_an_edit() -> None:
    tag = re.compile(r"(?:NEW|EDIT)-\w+-\d")
    for seed in range(400):
        rng = random.Random(seed)
        _, (live, agent) = devices("live", "agent", seed=seed)
        base = "".join(f"line {i} {rng.choice(WORDS)} {rng.choice(WORDS)}\n" for i in range(rng.randint(3, 12)))
        write(live, base)
        sync(live, agent)
        sha, state = sha_of(agent), agent.document.base_state()
        theirs, mine = change(rng, base, "live"), change(rng, base, "agent")
        write(live, theirs, sha)
        sync(live, agent)
        merge(agent, mine, sha, state)
        sync(live, agent)
        assert_converged(live, agent)
        result = text_of(live)
        assert sorted(set(tag.findall(result))) == sorted(tag.findall(result)), "doubled"
        assert set(tag.findall(theirs + mine)) <= set(tag.findall(result)), "an edit is lost"
        kept = set(re.findall(r"line \d+", theirs)) & set(re.findall(r"line \d+", mine))
        assert kept <= set(re.findall(r"line \d+", result)), "a line is lost"
