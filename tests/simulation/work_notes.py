"""Work on notes: whole-text writes and merges, appends, edits, deletes; each added line carries a tag of its own.

Lines are never moved, so a tag that was added once stands at most once in the end, and is gone only if somebody who had
the line before him took it away.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sync_core.document.notes import MergedNote, Note
from sync_core.errors import BaseUnknown, PreconditionFailed, SegueError
from sync_core.replica.commands import AppendNote, DeleteNote, EditNote, MergeNote, ReadNote, WriteNote
from tests.simulation.journal import NoteOp, tags_of

if TYPE_CHECKING:
    from tests.simulation.workload import User

__all__ = ["NOTES", "NoteWork"]

NOTES = ("worklog", "plan")
_WORDS = ("checked", "total", "paid", "open", "größe", "🙂")


class NoteWork:
    """What a user does with notes. It remembers what it read, and may write from a text that is no longer current."""

    def __init__(self, user: "User") -> None:
        self._user = user
        self._read: dict[tuple[str, str], Note] = {}

    def step(self, task: str) -> None:
        """Do one thing with one note."""
        rng = self._user.rng
        name = rng.choice(NOTES)
        choice = rng.random()
        if choice < 0.35:
            self._append(task, name)
        elif (task, name) not in self._read or rng.random() >= self._user.mix.stale:
            self._read_then(task, name, choice)
        else:
            self._change(task, self._read[task, name], choice)

    def _read_then(self, task: str, name: str, choice: float) -> None:
        user = self._user

        def done(note: object) -> None:
            assert isinstance(note, Note)
            self._read[task, name] = note
            user.device.later(user.rng.randint(0, 300), lambda: self._change(task, note, choice))

        user.ask(ReadNote(user.device.next_ref(), task, name), done)

    def _change(self, task: str, note: Note, choice: float) -> None:
        if task not in self._user.open:
            self._user.next()
        elif choice < 0.7:
            self._rewrite(task, note)
        elif choice < 0.92 or not note.text:
            self._edit(task, note)
        else:
            self._delete(task, note)

    # --- the single commands ------------------------------------------------------------------------------------------

    def _op(self, task: str, name: str, tag: str, number: int) -> NoteOp:
        return NoteOp(number=number, device=self._user.device.label, task=task, tag=tag, note=name, added=(tag,))

    def _line(self, tag: str) -> str:
        return f"{tag} {self._user.rng.choice(_WORDS)} {self._user.rng.randint(0, 9)}\n"

    def _append(self, task: str, name: str) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("n")
        op = self._op(task, name, tag, number)
        user.write(op, AppendNote(user.device.next_ref(), task, name, self._line(tag)), self._keep(task))

    def _rewrite(self, task: str, note: Note) -> None:
        """Write the whole text anew: some lines dropped or replaced, one added somewhere."""
        user, rng = self._user, self._user.rng
        number, tag = user.world.journal.next_tag("n")
        lines = note.text.splitlines(keepends=True)
        if lines and rng.random() < 0.4:
            del lines[rng.randrange(len(lines))]
        if lines and rng.random() < 0.3:
            lines[rng.randrange(len(lines))] = self._line(tag)
        else:
            lines.insert(rng.randint(0, len(lines)), self._line(tag))
        text = "".join(lines)
        op = self._op(task, note.name, tag, number)
        op.removed = frozenset(tags_of(note.text)) - frozenset(tags_of(text))
        sha256 = note.content_sha256 if note.text else None
        if note.text and rng.random() < 0.4:
            self._merge(op, note, text)
        else:
            self._write(op, note, text, sha256)

    def _write(self, op: NoteOp, note: Note, text: str, sha256: str | None) -> None:
        """Write; if somebody was faster, merge with what stands now. One op, whatever it takes."""
        user = self._user
        user.world.journal.add(op)
        command = WriteNote(user.device.next_ref(), op.task, op.note, text, sha256)

        def done(value: object) -> None:
            self._done(op, value)

        def failed(error: SegueError) -> None:
            if isinstance(error, PreconditionFailed) and note.text:
                self._merge(op, note, text, known=True)
                return
            op.refused = True
            if not isinstance(error, PreconditionFailed):
                user.world.tolerate(error)
            user.next()

        user.device.tag(command.ref, op)
        user.ask(command, done, failed)

    def _merge(self, op: NoteOp, base: Note, text: str, *, known: bool = False) -> None:
        user = self._user
        if not known:
            user.world.journal.add(op)
        command = MergeNote(user.device.next_ref(), op.task, op.note, text, base.content_sha256)

        def failed(error: SegueError) -> None:
            op.refused = True
            if not isinstance(error, BaseUnknown):
                user.world.tolerate(error)
            user.next()

        user.device.tag(command.ref, op)
        user.ask(command, lambda value: self._done(op, value), failed)

    def _done(self, op: NoteOp, value: object) -> None:
        op.promised = True
        self._keep(op.task)(value)
        self._user.world.checks.promised(self._user.device, op)
        self._user.next()

    def _edit(self, task: str, note: Note) -> None:
        """Replace one line that was read by another, if it still stands there once."""
        user, rng = self._user, self._user.rng
        lines = note.text.splitlines(keepends=True)
        if not lines:
            self._append(task, note.name)
            return
        number, tag = user.world.journal.next_tag("n")
        old = rng.choice(lines)
        op = self._op(task, note.name, tag, number)
        op.removed = frozenset(tags_of(old))
        user.write(op, EditNote(user.device.next_ref(), task, note.name, old, self._line(tag)), self._keep(task))

    def _delete(self, task: str, note: Note) -> None:
        user = self._user
        number, tag = user.world.journal.next_tag("n")
        op = self._op(task, note.name, tag, number)
        op.added, op.removed = (), frozenset(tags_of(note.text))
        user.write(op, DeleteNote(user.device.next_ref(), task, note.name, note.content_sha256))

    def _keep(self, task: str) -> Callable[[object], None]:
        """Remember the text that a reply showed: it is what the user has read now."""

        def keep(value: object) -> None:
            note = value.note if isinstance(value, MergedNote) else value
            if isinstance(note, Note):
                self._read[task, note.name] = note

        return keep
