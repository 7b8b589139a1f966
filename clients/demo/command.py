"""`segue demo`: plays the story in real processes, then counts from the files what really happened."""

import asyncio
import tempfile
import time
from pathlib import Path

import msgspec

from clients.demo.diagram import draw
from clients.demo.evidence import Figures, figures_of, gather, table_rows, unmet
from clients.demo.narrator import Narrator, narrator_for
from clients.demo.people import Person, ScriptedPerson, TypingPerson
from clients.demo.play import play
from clients.demo.processes import ProcessFailed
from clients.demo.story import DESKTOP, PHONE, Breakage, DemoFiles
from clients.demo.story_timeline import timeline_of
from sync_core.errors import SegueError

__all__ = ["run_demo"]

_SCRIPT = {DESKTOP: ("CC-1042",), PHONE: ("1",)}
"""What the scripted people answer: the missing cost centre on the desktop, the end of the conflict on the phone."""


class _Outcome(msgspec.Struct, frozen=True):
    """A run that could be counted: its figures, a sentence for each that is not as expected, and the picture."""

    figures: Figures
    wrong: tuple[str, ...]
    picture: Path


def run_demo(
    *, ask: bool = False, break_: Breakage | None = None, json_output: bool = False, keep: Path | None = None
) -> int:
    """Play the demo and print what happened; returns the exit status: 0 as expected, 1 if anything was not.

    `ask` lets the user type the answers. `break_` plants a fault that the figures must show. `json_output` prints one
    JSON document instead of the story. `keep` is a folder for all files of the run, made if need be; without it only
    the picture is kept, in a new temporary folder.
    """
    narrator = narrator_for(json_output)
    try:
        folder = _folder(keep)
    except OSError as error:
        return _report_failure(f"The folder of --keep cannot be used: {error}", narrator, json_output)
    files = DemoFiles(folder)
    scripted = ScriptedPerson(narrator, _SCRIPT)
    person = TypingPerson(narrator, scripted) if ask else scripted
    try:
        outcome = _played(files, person, narrator, break_)
    except (ProcessFailed, SegueError) as failure:
        return _report_failure(str(failure), narrator, json_output)
    finally:
        if keep is None:
            _keep_picture_only(files)
    return _report(outcome, narrator, json_output)


def _folder(keep: Path | None) -> Path:
    """Return the run's folder, made and empty; raises `OSError` if that cannot be."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="segue-demo-"))
    keep.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise OSError(f"{keep} holds files already; name a new or an empty one.")
    return keep


def _played(files: DemoFiles, person: Person, narrator: Narrator, breakage: Breakage | None) -> _Outcome:
    started = time.monotonic()
    lives = asyncio.run(play(files, person, narrator, breakage))
    evidence = gather(files)
    figures = figures_of(evidence, time.monotonic() - started)
    files.picture.write_text(draw(timeline_of(evidence, lives)), "utf-8")
    return _Outcome(figures, unmet(figures, evidence), files.picture)


def _keep_picture_only(files: DemoFiles) -> None:
    for path in files.folder.iterdir():
        if path != files.picture:
            path.unlink()
    if not files.picture.exists():
        files.folder.rmdir()


def _report(outcome: _Outcome, narrator: Narrator, json_output: bool) -> int:
    good = not outcome.wrong
    if json_output:
        figures = msgspec.structs.asdict(outcome.figures)
        _print_json({**figures, "as_expected": good, "wrong": list(outcome.wrong), "picture": str(outcome.picture)})
        return 0 if good else 1
    narrator.figures(table_rows(outcome.figures))
    for sentence in outcome.wrong:
        narrator.closing(sentence, good=False)
    verdict = "Everything was as expected" if good else "Not everything was as expected"
    narrator.closing(f"{verdict}, in {outcome.figures.seconds} s. The picture of this run: {outcome.picture}", good)
    return 0 if good else 1


def _report_failure(sentence: str, narrator: Narrator, json_output: bool) -> int:
    if json_output:
        _print_json({"as_expected": False, "wrong": [sentence]})
    else:
        narrator.closing(sentence, good=False)
    return 1


def _print_json(document: dict[str, object]) -> None:
    print(msgspec.json.encode(document).decode())
