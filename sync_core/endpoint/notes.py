"""`task.notes`: working text that all ends may edit. Whole-text writes and merges name the text they were made from."""

from sync_core.checked import check_text, refused
from sync_core.document.notes import MergedNote, Note, make_note
from sync_core.endpoint.handle import Handle
from sync_core.errors import StoreFull
from sync_core.ids import check_note
from sync_core.replica.commands import AppendNote, DeleteNote, EditNote, MergeNote, ReadNote, WriteNote

__all__ = ["Notes"]


class Notes:
    """The notes of one handle."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def list(self) -> tuple[Note, ...]:
        """Return every note, by name."""
        notes = self._handle.view.notes
        return tuple(notes[name] for name in sorted(notes))

    async def read(self, name: str) -> Note:
        """Return a note, empty if nobody wrote it, and keep its state as a base for `merge` for 7 days.

        A full store can keep no base, but is read all the same.
        """
        note = check_note(name)
        try:
            return await self._handle.ask(ReadNote(self._handle.ref(), self._handle.key, note), Note)
        except StoreFull:
            return self._handle.view.notes.get(note) or make_note(note, "")

    async def write(self, name: str, text: str, *, content_sha256: str | None = None) -> Note:
        """Replace the whole text, made from the text with this hash (None only for a new note).

        Raises `PreconditionFailed`, with the current text and hash inside, if the note has changed since; identical
        content succeeds even then. Raises `TooLarge` over 128 KiB.
        """
        base = None if content_sha256 is None else check_text(content_sha256, "content_sha256")
        given = check_text(text, "text")
        return await self._change(WriteNote(self._ref(), self._handle.key, check_note(name), given, base))

    async def merge(self, name: str, text: str, *, base: Note | str) -> MergedNote:
        """Merge a text, made from `base` (a note that `read` gave, or its hash), into the current one.

        Lines that both ends changed come back as `overlap`. Raises `BaseUnknown` if this device did not read the base.
        """
        self._handle.check_writable()
        given = check_text(text, "text")
        command = MergeNote(self._ref(), self._handle.key, check_note(name), given, _base_sha256(base))
        return await self._handle.runner.ask(command, MergedNote)

    async def append(self, name: str, text: str) -> Note:
        """Put text at the end; it brings its own line break."""
        given = check_text(text, "text")
        return await self._change(AppendNote(self._ref(), self._handle.key, check_note(name), given))

    async def edit(self, name: str, old: str, new: str) -> Note:
        """Replace `old`, which must occur exactly once in the current text; raises `ValueRefused` if it does not."""
        find, put = check_text(old, "old"), check_text(new, "new")
        return await self._change(EditNote(self._ref(), self._handle.key, check_note(name), find, put))

    async def delete(self, name: str, *, content_sha256: str) -> None:
        """Delete the note with this content; raises `PreconditionFailed` if it has changed since."""
        self._handle.check_writable()
        read = check_text(content_sha256, "content_sha256")
        command = DeleteNote(self._ref(), self._handle.key, check_note(name), read)
        await self._handle.runner.tell(command)

    def _ref(self) -> int:
        self._handle.check_writable()
        return self._handle.ref()

    async def _change(self, command: WriteNote | AppendNote | EditNote) -> Note:
        return await self._handle.runner.ask(command, Note)


def _base_sha256(base: Note | str) -> str:
    if isinstance(base, Note):
        return base.content_sha256
    if isinstance(base, str):
        return check_text(base, "base")
    raise refused("base", "a note or its content_sha256", base)
