"""The link: what the relay says in a session, and what becomes of the tasks when it begins and ends."""

from sync_core.errors import ProtocolError, SegueError
from sync_core.frames import (
    WIRE_VERSION,
    BlobMissing,
    BlobPiece,
    BlobStored,
    DigestAt,
    Entries,
    Heads,
    Listing,
    Login,
    Receipt,
    Refusal,
    Refused,
    SnapshotWanted,
    Welcome,
)
from sync_core.ids import split_stream
from sync_core.parts import role_named
from sync_core.petitions import ClaimAnswer, Ruled
from sync_core.replica import digests, frames
from sync_core.replica import effects as e
from sync_core.replica.adoption import on_snapshot_stored
from sync_core.replica.changes import LinkState
from sync_core.replica.core import Core
from sync_core.replica.desk import Desk
from sync_core.replica.endings import begin_again, learn, log_is_gone, on_answer, tell_tombstones
from sync_core.replica.renewal import Renewal
from sync_core.replica.session import SessionEvent
from sync_core.replica.table import TaskTable
from sync_core.replica.task import TaskReplica

__all__ = ["Link"]


class Link:
    """The Replica's side of the session; its states are those of `session`."""

    def __init__(self, core: Core, table: TaskTable, desk: Desk) -> None:
        self._core = core
        self._table = table
        self._desk = desk
        self._renewal = Renewal(core.entropy)

    def on_link_up(self, event: e.LinkUp) -> None:
        """A connection stands: log in."""
        session = self._core.session
        session.on(SessionEvent.LINK_UP)
        if session.state is LinkState.REFUSED:
            # The link was made before the refusal that ended the one before had been read.
            self._core.emit(e.HangUp(session.reason, final=True))
            return
        session.login_at_ms = self._core.now_ms
        self._log_in(event.token)

    def on_link_down(self, event: e.LinkDown) -> None:
        """The connection ended."""
        self._lose_link(SessionEvent.LINK_DOWN, event.reason)

    def on_link_failed(self, event: e.LinkFailed) -> None:
        """No connection came about."""
        self._lose_link(SessionEvent.LINK_FAILED, event.reason)

    def on_token_renewed(self, event: e.TokenRenewed) -> None:
        """A fresh token came: the relay is told, and nothing else of the session changes."""
        if self._core.session.logged_in:
            self._log_in(event.token)

    def on_renewal_failed(self, event: e.RenewalFailed) -> None:
        """No fresh token came: say so, and try again."""
        if self._core.session.logged_in:
            self._core.session.reason = event.reason
            self._renewal.failed(self._core.now_ms)

    def _log_in(self, token: str) -> None:
        self._core.send(Login(WIRE_VERSION, self._core.subject, self._core.device, token))

    def _lose_link(self, event: SessionEvent, reason: str) -> None:
        table = self._table
        # Without a session there is nothing to forget but what is in memory, however many tasks are followed.
        tasks = table.tasks if self._core.session.logged_in else table.active
        self._core.session.on(event, reason)
        self._renewal.stop()
        table.following.stop()
        self._desk.on_link_lost()
        for task in tasks.values():
            task.leave_session()
        for task in list(table.active.values()):
            task.outbox.pause()
            for download in task.transfers.stop():
                frames.on_lost(task, download)
            table.touch(task)

    def on_frame(self, event: e.FrameReceived) -> None:
        """Take a frame; one that is malformed inside, or out of turn, costs the link."""
        frame = event.frame
        if self._core.session.state in (LinkState.OFFLINE, LinkState.REFUSED):
            return  # The session is over; what still comes belongs to nobody.
        if isinstance(frame, Welcome):
            self._on_welcome(frame)
        elif isinstance(frame, Refused):
            self._on_refused(frame)
        elif not self._core.session.logged_in:
            return
        elif isinstance(frame, Listing):
            self._desk.on_listing(frame)
        elif isinstance(frame, (ClaimAnswer, Ruled)):
            self._desk.petitions.on_answer(frame)
        else:
            try:
                self._on_task_frame(event)
            except SegueError as error:
                self._core.emit(e.HangUp(error.sentence, final=False))

    def _on_welcome(self, frame: Welcome) -> None:
        session = self._core.session
        if frame.wire_version != WIRE_VERSION:
            session.on(SessionEvent.REFUSED_FOR_GOOD, f"version: the relay speaks {frame.wire_version}")
            self._core.emit(e.HangUp("version", final=True))
            return
        is_renewal = session.logged_in
        session.on(SessionEvent.WELCOME)
        session.role = role_named(frame.role)
        session.authority = frame.authority
        session.relay_time_ms = frame.relay_time_ms
        self._renewal.welcomed(frame.lives_ms, self._core.now_ms)
        if is_renewal:
            return
        tell_tombstones(self._core, (task.key for task in self._table.tasks.values() if task.followed))
        for task in self._table.tasks.values():
            if task.followed or task.openings:
                self._table.following.want(task)
        for task in self._table.active.values():
            task.transfers.restart()

    def _on_refused(self, frame: Refused) -> None:
        event = SessionEvent.REFUSED_FOR_GOOD if frame.final else SessionEvent.REFUSED
        self._lose_link(event, f"{frame.code}: {frame.sentence}")
        self._core.emit(e.HangUp(frame.code, final=frame.final))

    def _on_task_frame(self, event: e.FrameReceived) -> None:
        frame = event.frame
        key = getattr(frame, "task", None) or split_stream(getattr(frame, "stream", ""))[0]
        task = self._table.get(key)
        if isinstance(frame, Heads):
            on_answer(self._core, frame)
        if task is None:
            return
        self._table.touch(task)
        if isinstance(frame, Heads):
            self._on_heads(task, event, frame)
        elif isinstance(frame, BlobStored):
            if task.transfers.on_stored(frame):
                on_snapshot_stored(task, frame.sha256)
        elif isinstance(frame, BlobPiece):
            if (download := task.transfers.on_piece(frame)) is not None:
                frames.on_download(task, download)
        elif isinstance(frame, BlobMissing):
            if (missing := task.transfers.on_missing(frame)) is not None:
                frames.on_lost(task, missing)
        elif task.follow.known is None or (isinstance(frame, DigestAt) and task.document is None):
            # Before the heads of this session's Hello only leftovers of an earlier one come; and nobody reads a task
            # only to compare it.
            return
        elif self._table.ready(task, event):
            self._on_document_frame(task, frame)

    def _on_heads(self, task: TaskReplica, event: e.FrameReceived, frame: Heads) -> None:
        session = self._core.session
        session.relay_time_ms = max(session.relay_time_ms, frame.relay_time_ms)
        is_news = not frame.answers and task.follow.known is not None
        if not is_news and frame.answers != task.follow.hello_number:
            return
        if frame.purged_version or any(told.emptied for told in frame.streams):
            if not self._table.ready(task, event):
                return  # What waits to be sent must be at hand before anything goes.
            if self._is_over(task, frame):
                return
        if frame.answers == task.follow.hello_number:
            self._table.following.on_heads(task)
            frames.on_heads(task, frame)
            if self._table.following.is_fresh(task) and not task.follow.hello_again:
                self._desk.on_heads(task)
        elif not frame.answers and task.follow.known is not None:
            frames.on_news(task, frame)

    def _is_over(self, task: TaskReplica, frame: Heads) -> bool:
        """Deal with a task that was purged; returns whether that is all that there is to say of it."""
        if not task.has_content:
            if frame.purged_version and not frame.known:
                learn(self._core, frame)
            return False
        assert task.document is not None
        version = task.document.view().version
        if not frame.purged_version:
            return False
        if not log_is_gone(frame) and version > frame.purged_version:
            self._table.following.on_heads(task)
            begin_again(task)
            return True
        self._desk.bury(task, frame.purged_version, frame.purged_for, told=True)
        return True

    def _on_document_frame(self, task: TaskReplica, frame: object) -> None:
        if isinstance(frame, Entries):
            frames.on_entries(task, frame)
        elif isinstance(frame, Receipt):
            frames.on_receipt(task, frame)
        elif isinstance(frame, Refusal):
            frames.on_refusal(task, frame)
        elif isinstance(frame, DigestAt):
            digests.on_digest(task, frame)
        elif isinstance(frame, SnapshotWanted):
            task.agenda.snapshot_wanted = split_stream(frame.stream)[1]
            task.reload()
        else:
            raise ProtocolError("The relay sent a frame that is not for an endpoint.")

    def tick(self) -> None:
        """Hang up on a relay that does not answer the login; renew a token that ends soon."""
        session = self._core.session
        waiting = session.state is LinkState.CONNECTING and session.login_at_ms > 0
        if waiting and self._core.now_ms - session.login_at_ms >= self._core.settings.login_timeout_ms:
            session.login_at_ms = 0
            self._core.emit(e.HangUp("the relay does not answer", final=False))
        if self._renewal.is_due(self._core.now_ms):
            self._core.emit(e.RenewToken())
