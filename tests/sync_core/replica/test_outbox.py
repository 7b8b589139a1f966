"""The outbox sends in order, once, and forgets an entry only when its number is durable."""

from sync_core.entry import Entry, EntryKind
from sync_core.replica.outbox import RESEND_AFTER_MS, Outbox, key_of

NONE: frozenset[str] = frozenset()


def entry(seq: int, *, writer: int = 70_000, stream: str = "a:state", blob: str | None = None, size: int = 10) -> Entry:
    return Entry(stream, writer, seq, EntryKind.UPDATE, bytes(size), "phone", 0, blob)


def seqs(entries: tuple[Entry, ...]) -> list[int]:
    return [item.writer_seq for item in entries]


def filled(*entries: Entry) -> Outbox:
    outbox = Outbox()
    for item in entries:
        outbox.add(item)
    return outbox


def test_entries_are_pushed_in_the_order_of_local_commits_across_writers_and_streams() -> None:
    items = [entry(1), entry(1, writer=80_000), entry(1, stream="a:history"), entry(2)]
    assert filled(*items).next_push(NONE, 0) == (False, tuple(items))


def test_nothing_is_sent_twice_before_a_restart() -> None:
    outbox = filled(entry(1), entry(2))
    assert seqs(outbox.next_push(NONE, 0)[1]) == [1, 2]
    assert outbox.next_push(NONE, 0)[1] == ()
    outbox.restart()
    assert seqs(outbox.next_push(NONE, 0)[1]) == [1, 2]


def test_recovered_entries_go_first_and_in_frames_of_their_own() -> None:
    outbox = filled(entry(1))
    old = entry(9, writer=90_000)
    outbox.recovered[key_of(old)] = old
    outbox.restart()
    assert outbox.next_push(NONE, 0) == (True, (old,))
    assert outbox.next_push(NONE, 0) == (False, (entry(1),))


def test_an_entry_waits_for_its_blob_and_nothing_overtakes_it() -> None:
    outbox = filled(entry(1), entry(2, blob="b"), entry(3))
    assert seqs(outbox.next_push(frozenset({"b"}), 0)[1]) == [1]
    assert outbox.next_push(frozenset({"b"}), 0)[1] == ()
    assert outbox.next_blob() == "b"
    assert seqs(outbox.next_push(NONE, 0)[1]) == [2, 3]


def test_a_frame_is_bounded_and_so_is_what_is_in_flight() -> None:
    outbox = filled(*(entry(seq, size=60_000) for seq in range(1, 20)))
    frames = []
    while push := outbox.next_push(NONE, 0)[1]:
        frames.append(seqs(push))
    assert frames[0] == [1]
    assert sum(map(len, frames)) < 19


def test_a_receipt_keeps_the_entry_until_its_number_is_durable() -> None:
    outbox = filled(entry(1))
    outbox.next_push(NONE, 0)
    outbox.on_receipt(key_of(entry(1)), 5)
    assert len(outbox) == 1
    assert outbox.next_push(NONE, 6)[1] == ()
    assert outbox.on_numbered(key_of(entry(1)), 6) == entry(1)
    assert len(outbox) == 0


def test_a_new_session_sends_again_what_was_receipted_but_filled_no_place() -> None:
    outbox = filled(entry(1))
    outbox.next_push(NONE, 0)
    outbox.on_receipt(key_of(entry(1)), 5)
    outbox.restart()
    assert seqs(outbox.next_push(NONE, 10)[1]) == [1]


def test_silence_is_noticed_only_while_something_is_in_flight_and_each_time_later() -> None:
    """SE-16: on a slow link a fixed time would put more and more before the answer."""
    outbox = filled(entry(1))
    outbox.restart_if_silent(10**9)
    now_ms = 1_000
    for wait_ms in (RESEND_AFTER_MS, 2 * RESEND_AFTER_MS, 4 * RESEND_AFTER_MS):
        assert outbox.next_push(NONE, now_ms) == (False, (entry(1),))
        outbox.restart_if_silent(now_ms + wait_ms - 1)
        assert outbox.next_push(NONE, now_ms) == (False, ())
        now_ms += wait_ms
        outbox.restart_if_silent(now_ms)
    outbox.next_push(NONE, now_ms)
    outbox.on_numbered(key_of(entry(1)), now_ms)
    outbox.add(entry(2))
    outbox.next_push(NONE, now_ms)
    outbox.restart_if_silent(now_ms + RESEND_AFTER_MS)
    assert outbox.next_push(NONE, now_ms) == (False, (entry(2),))


def test_a_new_session_begins_with_the_usual_wait() -> None:
    outbox = filled(entry(1))
    for now_ms in (RESEND_AFTER_MS, 3 * RESEND_AFTER_MS):
        outbox.next_push(NONE, now_ms)
        outbox.restart_if_silent(now_ms + 2 * RESEND_AFTER_MS)
    outbox.pause()
    outbox.restart()
    outbox.next_push(NONE, 0)
    outbox.restart_if_silent(RESEND_AFTER_MS)
    assert outbox.next_push(NONE, 0) == (False, (entry(1),))
