"""Blobs on the link: pieces up before the entry that names them, pieces down when somebody asks.

A transfer resumes where the relay (up) or this device (down) stands; a piece without an answer is sent again.
"""

import hashlib

from sync_core.frames import BlobAbsent, BlobMissing, BlobPiece, BlobStored, BlobWanted
from sync_core.limits import BLOB_BYTES_MAX, BLOB_PIECE_BYTES
from sync_core.replica.core import Core
from sync_core.replica.effects import LoadBlob
from sync_core.replica.patience import Patience
from sync_core.replica.writes import PutBlob, SetBlobState

__all__ = ["Download", "Transfers"]

_RETRY_MS = 3_000


class _Upload:
    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256
        self.data: bytes | None = None
        self.sent_at_ms = 0
        self.patience = Patience()


class Download:
    """A blob on its way here. `refs` are the commands that wait for it; `snapshot`: the replica itself waits."""

    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256
        self.data = bytearray()
        self.refs: list[int] = []
        self.snapshot = False
        self.asked_at_ms = 0
        self.patience = Patience()


class Transfers:
    """The blobs of one task that are on their way. `absent` are those that were declared so: they are not here."""

    def __init__(self, core: Core, task: str) -> None:
        self._core = core
        self._task = task
        self.uploads: set[str] = set()
        self.absent: set[str] = set()
        self.downloads: dict[str, Download] = {}
        self._upload: _Upload | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing moves in either direction."""
        return self._upload is None and not self.downloads

    def restart(self) -> None:
        """A new session: uploads begin again where the relay stands, downloads go on where this device stands."""
        self._upload = None
        for download in self.downloads.values():
            download.patience.regain()
            self._ask(download)

    def stop(self) -> list[Download]:
        """The link is gone: return the downloads that nobody will deliver now."""
        self._upload = None
        gone = [download for download in self.downloads.values() if not download.snapshot]
        for download in gone:
            del self.downloads[download.sha256]
        return gone

    def push(self, sha256: str) -> None:
        """Send a blob, one at a time; the entry that names it waits."""
        if self._upload is None and sha256 in self.uploads:
            self._upload = _Upload(sha256)
            self._core.emit(LoadBlob(self._task, sha256))

    def on_loaded(self, sha256: str, data: bytes | None) -> None:
        """The store answered: begin with the first piece, or declare the blob absent."""
        upload = self._upload
        if upload is None or upload.sha256 != sha256 or upload.data is not None:
            return
        if data is None:
            self.absent.add(sha256)
            self._core.send(BlobAbsent(self._task, sha256))
            self._uploaded(sha256)
            return
        upload.data = data
        self._send_piece(upload, 0)

    def on_stored(self, frame: BlobStored) -> bool:
        """The relay tells how much it has; return whether the blob is now complete there."""
        if frame.complete:
            known = frame.sha256 in self.uploads
            self._uploaded(frame.sha256)
            return known
        upload = self._upload
        if upload is not None and upload.sha256 == frame.sha256 and upload.data is not None:
            upload.patience.regain()
            self._send_piece(upload, frame.offset)
        return False

    def fetch(self, sha256: str) -> Download:
        """Ask the relay for a blob, unless it is on its way already."""
        download = self.downloads.get(sha256)
        if download is None:
            download = self.downloads[sha256] = Download(sha256)
            self._ask(download)
        return download

    def on_piece(self, frame: BlobPiece) -> Download | None:
        """Take a piece; return the download when its last byte came, verified or empty if it is not what it claims."""
        download = self.downloads.get(frame.sha256)
        if download is None or frame.offset != len(download.data) or frame.size_bytes > BLOB_BYTES_MAX:
            return None
        download.data += frame.data
        download.patience.regain()
        if len(download.data) < frame.size_bytes and frame.data:
            self._ask(download)
            return None
        del self.downloads[frame.sha256]
        if hashlib.sha256(download.data).hexdigest() != frame.sha256:
            download.data.clear()
        return download

    def on_missing(self, frame: BlobMissing) -> Download | None:
        """The relay does not have it: return the download that ends. As answer to an upload it takes none from this
        device; the entry that names the blob goes on, and gets its own answer."""
        if self._upload is not None and self._upload.sha256 == frame.sha256:
            self.uploads.discard(frame.sha256)
            self._upload = None
        return self.downloads.pop(frame.sha256, None)

    def keep(self, download: Download) -> bytes:
        """Store a finished download and return its bytes."""
        data = bytes(download.data)
        self._core.write(PutBlob(self._task, download.sha256, data, upload=False))
        return data

    def tick(self) -> None:
        """Repeat what had no answer."""
        now_ms = self._core.now_ms
        upload = self._upload
        if (
            upload is not None
            and upload.data is not None
            and upload.patience.is_over(_RETRY_MS, upload.sent_at_ms, now_ms)
        ):
            upload.patience.lose()
            self._send_piece(upload, 0)
        for download in self.downloads.values():
            if download.patience.is_over(_RETRY_MS, download.asked_at_ms, now_ms):
                download.patience.lose()
                self._ask(download)

    def _uploaded(self, sha256: str) -> None:
        if sha256 in self.uploads:
            self.uploads.discard(sha256)
            self._core.write(SetBlobState(self._task, sha256, upload=False))
        if self._upload is not None and self._upload.sha256 == sha256:
            self._upload = None

    def _send_piece(self, upload: _Upload, offset: int) -> None:
        data = upload.data or b""
        piece = data[offset : offset + BLOB_PIECE_BYTES]
        upload.sent_at_ms = self._core.now_ms
        self._core.send(BlobPiece(self._task, upload.sha256, offset, len(data), piece))

    def _ask(self, download: Download) -> None:
        download.asked_at_ms = self._core.now_ms
        if self._core.session.logged_in:
            self._core.send(BlobWanted(self._task, download.sha256, len(download.data)))
