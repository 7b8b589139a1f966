"""`segue rehearse`: read the recording, play it, show the progress on a terminal, and answer with the figures."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clients.config import WrongUsage
from clients.desktop.output import Answer
from clients.desktop.rehearse.recording import read_runs
from clients.desktop.rehearse.rehearsal import Plan, rehearse
from clients.desktop.rehearse.report import answer_of
from clients.desktop.rehearse.rules import check_rules, read_rules
from clients.desktop.rehearse.schedule import Faults

__all__ = ["run_rehearsal"]


def run_rehearsal(
    runs: Path, tools: Path, *, devices: int, seed: int, faults: Faults, limit: int | None, keep: Path | None
) -> Answer:
    """Rehearse the runs of a file and return the figures.

    `limit` takes only the first runs. `keep` is a new or empty folder in which stores and logs stay; without it they
    are deleted. Raises `WrongUsage` for files that cannot be used.
    """
    plan = Plan(read_runs(runs, limit), read_rules(tools), devices, seed, faults)
    if limit is None:
        check_rules(plan.rules, plan.runs)
    started = time.monotonic()
    with _folder(keep) as folder, _progress(sum(len(run.calls) for run in plan.runs)) as called:
        figures = asyncio.run(rehearse(plan, folder, called))
    return answer_of(figures, seed, devices, time.monotonic() - started)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="segue-rehearse-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        empty = not any(keep.iterdir())
    except OSError as error:
        raise WrongUsage(f"The folder of --keep cannot be used: {error.strerror}.") from None
    if not empty:
        raise WrongUsage("The folder of --keep holds files already.", hint="Name a new or an empty folder.")
    yield keep


@contextmanager
def _progress(calls: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error, if that is a terminal; standard output is for the answer."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Playing calls"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=calls)
        yield lambda: progress.advance(bar)
