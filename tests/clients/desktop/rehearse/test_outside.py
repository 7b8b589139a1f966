"""The outside system: counts effects, checks keys, survives whoever asks it, and tells a double from a second call."""

import subprocess
import sys
from pathlib import Path

import pytest

from clients.desktop.rehearse.outside import Deed, Happened, OutsideSystem, read_outside

ROOT = Path(__file__).resolve().parents[4]


def booking(step: int, entity: str = '["mia"]', label: str = "A", result: str = "fine") -> Deed:
    return Deed(7, step, "book", "phone", result, entity, label)


def doubles(path: Path) -> list[tuple[int, bool]]:
    return [(effect.step, effect.double) for effect in read_outside(path)]


def test_what_comes_again_under_a_key_is_answered_and_does_not_happen_again(tmp_path: Path) -> None:
    path = tmp_path / "outside.db"
    first, second = OutsideSystem(path), OutsideSystem(path)
    assert first.act("key", booking(1, result="first")) == "first"
    assert second.act("key", booking(1, result="second")) == "first"
    assert read_outside(path) == (
        Happened(7, 1, "book", "phone", '["mia"]', "first", asked=2, undone_by=None, double=0),
    )


def test_the_probe_tells_what_happened_and_of_the_rest_that_it_did_not(tmp_path: Path) -> None:
    outside = OutsideSystem(tmp_path / "outside.db")
    assert outside.probe("key") is None
    outside.act("key", booking(1, result=""))
    assert outside.probe("key") == "" and outside.probe("another") is None


def test_two_keys_for_one_call_are_a_double(tmp_path: Path) -> None:
    outside = OutsideSystem(tmp_path / "outside.db")
    outside.act("key", booking(1, entity=""))
    outside.act("other key", booking(1, entity=""))
    assert doubles(tmp_path / "outside.db") == [(1, False), (1, True)]


@pytest.mark.parametrize(("entity", "double"), [('["mia"]', True), ('["omar"]', False), ("", False)])
def test_two_calls_for_one_entity_are_a_double_while_the_first_stands(
    tmp_path: Path, entity: str, double: bool
) -> None:
    outside = OutsideSystem(tmp_path / "outside.db")
    outside.act("1", booking(1))
    outside.act("2", booking(2, entity=entity, label="B"))
    outside.act("3", Deed(8, 3, "book", "phone", "another run", '["mia"]'))
    assert doubles(tmp_path / "outside.db") == [(1, False), (2, double), (3, False)]


@pytest.mark.parametrize(("undone", "double"), [("A", False), ("B", True)])
def test_what_was_undone_may_happen_again(tmp_path: Path, undone: str, double: bool) -> None:
    outside = OutsideSystem(tmp_path / "outside.db")
    outside.act("1", booking(1))
    outside.act("2", Deed(7, 2, "cancel", "phone", "fine", undoes=("book", undone)))
    outside.act("3", booking(3))
    assert doubles(tmp_path / "outside.db") == [(1, False), (2, False), (3, double)]
    first, *others = read_outside(tmp_path / "outside.db")
    assert first.undone_by == (None if double else 2) and all(effect.undone_by is None for effect in others)
    assert [first.stood_at(step) for step in (1, 2, 3)] == [False, double, double]


def test_an_effect_outlives_the_process_that_had_it(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from clients.desktop.rehearse.outside import Deed, OutsideSystem\n"
        "OutsideSystem(Path(sys.argv[1])).act('key', Deed(7, 1, 'book', 'phone', 'fine'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "outside.db")], cwd=ROOT, check=False)
    assert done.returncode != 0
    assert OutsideSystem(tmp_path / "outside.db").probe("key") == "fine"


def test_a_file_that_was_never_made_holds_nothing(tmp_path: Path) -> None:
    assert read_outside(tmp_path / "outside.db") == ()
