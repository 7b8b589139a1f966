"""Snapshots at the relay (rule F): asked for, offered, confirmed, and only then used.

A stream has at most one usable snapshot and one that was offered behind it. An offer names the latest of them as its
previous one (compare and swap), its blob is stored complete and it covers no more than the log. Once another device, or
another session of the same one, has confirmed the digest, it becomes the usable one; until then the previous stays
served. Entries that a usable snapshot covers leave the catch-up path, but for a safety window, and stay in the log.
"""

from msgspec.structs import replace

from server_relay.config import RelaySettings
from server_relay.hello import tell_heads
from server_relay.records import SetSnapshots
from server_relay.sessions import Session, Turn
from server_relay.streams import DIGEST_BYTES, StreamLog, TaskLog
from sync_core.frames import SnapshotConfirmed, SnapshotOffer, SnapshotRef, SnapshotWanted
from sync_core.limits import SNAPSHOT_BYTES_MAX

__all__ = ["ask_for_snapshots", "confirm_snapshot", "offer_snapshot"]


def offer_snapshot(turn: Turn, log: TaskLog, session: Session, offer: SnapshotOffer) -> None:
    """Take an offer if it fits; its sender hears the heads either way, the other followers if it was taken."""
    stream = log.stream(log.names[offer.stream])
    blob = log.blobs.get(offer.sha256)
    latest = stream.latest
    fits = (
        offer.epoch == stream.epoch
        and (stream.usable.covers_seq if stream.usable else 0) < offer.covers_seq <= stream.head
        and len(offer.digest) == DIGEST_BYTES
        and offer.previous == (latest.sha256 if latest else "")
        and blob is not None
        and blob.complete
        and blob.size_bytes <= SNAPSHOT_BYTES_MAX
    )
    if not fits or session.grant is None:
        tell_heads(turn, log, session, {})
        return
    stream.offered = SnapshotRef(offer.covers_seq, offer.sha256, offer.digest, session.grant.device, False)
    stream.offered_conn = session.conn
    _put(turn, log, stream)
    _tell_followers(turn, log)
    if session.conn not in log.followers:
        tell_heads(turn, log, session, {})


def confirm_snapshot(
    turn: Turn, log: TaskLog, session: Session, confirmed: SnapshotConfirmed, settings: RelaySettings
) -> None:
    """Use the offered snapshot if another session confirms its digest; anything else changes nothing."""
    stream = log.stream(log.names[confirmed.stream])
    offered = stream.offered
    if (
        offered is None
        or confirmed.epoch != stream.epoch
        or (confirmed.sha256, confirmed.digest) != (offered.sha256, offered.digest)
        or session.conn == stream.offered_conn
    ):
        return
    stream.usable = replace(offered, usable=True)
    stream.offered = None
    stream.tail_from = max(stream.tail_from, offered.covers_seq + 1 - settings.safety_window_entries)
    _put(turn, log, stream)
    _tell_followers(turn, log)


def ask_for_snapshots(turn: Turn, log: TaskLog, settings: RelaySettings) -> None:
    """Ask one live writer for a snapshot of each stream whose tail is long, not too often."""
    for stream in log.streams.values():
        latest = stream.latest
        tail = stream.head - (latest.covers_seq if latest else 0)
        asked_ms = stream.asked_ms
        if tail <= settings.snapshot_tail_entries or (
            asked_ms is not None and turn.now_ms - asked_ms < settings.snapshot_asked_every_ms
        ):
            continue
        for session, follow in log.followers.values():
            if follow.sent_no == log.head_no and session.grant is not None and session.grant.role.may_write:
                stream.asked_ms = turn.now_ms
                turn.reply(session, SnapshotWanted(stream.id))
                break


def _put(turn: Turn, log: TaskLog, stream: StreamLog) -> None:
    turn.writes.append(SetSnapshots(*log.key, stream.name, stream.usable, stream.offered, stream.tail_from))


def _tell_followers(turn: Turn, log: TaskLog) -> None:
    for session, follow in log.followers.values():
        if not follow.waits:
            tell_heads(turn, log, session, {})
