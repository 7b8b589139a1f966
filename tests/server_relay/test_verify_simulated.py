"""What relays wrote in simulated runs, with crashes, lost logs, snapshots, rulings and purges, is a sound store."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from server_relay.mailbox.schema import connect
from server_relay.mailbox.verifying import verify_file
from server_relay.mailbox.writing import TaskIds, commit
from server_relay.records import Cover, MailboxWrite, PurgeTask, PutPiece
from tests.simulation.mailbox_model import MailboxModel
from tests.simulation.mailbox_state import MailboxState
from tests.simulation.schedule import build

_SEEDS_MIN, _SEEDS_MAX = 60, 200
_MARKS = {Cover, PurgeTask, PutPiece}
"""Each of these leaves its own mark on what must fit together."""


class Commits:
    """The commits that a relay's disk has kept since it was last empty; None once it was put back to an older state."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kept: list[Sequence[MailboxWrite]] | None = []
        self._model: MailboxModel | None = None
        keep, crash, restore = MailboxModel.commit, MailboxModel.crash, MailboxModel.restore

        def committed(model: MailboxModel, writes: Sequence[MailboxWrite]) -> None:
            keep(model, writes)
            if model is not self._model:
                # A relay that lost its disk has a new one.
                self._model, self.kept = model, []
            if self.kept is not None:
                self.kept.append(tuple(writes))

        def crashed(model: MailboxModel, rng: Random) -> int:
            lost = crash(model, rng)
            if self.kept is not None and lost:
                del self.kept[-lost:]
            return lost

        def restored(model: MailboxModel, image: MailboxState) -> None:
            restore(model, image)
            self._model, self.kept = model, None if image.stats().tasks else []

        patch.setattr(MailboxModel, "commit", committed)
        patch.setattr(MailboxModel, "crash", crashed)
        patch.setattr(MailboxModel, "restore", restored)


def test_what_simulated_relays_stored_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[type] = set()
    entries = 0
    for seed in range(_SEEDS_MAX):
        with monkeypatch.context() as patch:
            commits = Commits(patch)
            world, fault_ms = build(seed)
            world.run(fault_ms)
        if not commits.kept:
            continue
        if seed >= _SEEDS_MIN and seen >= _MARKS:
            break
        connection, ids = connect(tmp_path / f"{seed}.db", None), TaskIds()
        connection.execute("PRAGMA synchronous = OFF")
        for writes in commits.kept:
            commit(connection, ids, writes)
            seen |= {type(write) for write in writes}
            seen |= {Cover for write in writes if getattr(write, "covers", ())}
        connection.close()
        verdict = verify_file(tmp_path / f"{seed}.db")
        assert verdict.problems == (), seed
        entries += verdict.entries
    assert entries > 500
    assert seen >= _MARKS
