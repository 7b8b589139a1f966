"""`python -m tests.benchmarks`: what Segue costs, each figure against its floor in the same run.

Exit status 0 if every benchmark ran, whatever the figures; 1 if one could not run, or with `--check` if a target was
missed; 2 for wrong usage.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import catch_up, compaction, growth, guarded_call, opening, propagation, slot_write
from tests.benchmarks.figures import FULL, QUICK, Benchmark, Figure, Scale
from tests.benchmarks.machine import describe
from tests.benchmarks.report import Report, as_json, misses, print_table

__all__ = ["BENCHMARKS", "main", "run_all"]

BENCHMARKS: dict[str, Benchmark] = {
    "slot write": slot_write.run,
    "opening": opening.run,
    "catch up": catch_up.run,
    "propagation": propagation.run,
    "growth": growth.run,
    "compaction": compaction.run,
    "guarded call": guarded_call.run,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks, print the report, return the exit status."""
    options = _parser().parse_args(argv)
    names = options.only or list(BENCHMARKS)
    report = asyncio.run(run_all(names, QUICK if options.quick else FULL, options.dir))
    if options.json:
        print(as_json(report))
    else:
        print_table(report)
    return 1 if report.failed or (options.check and misses(report)) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), metavar="NAME", help="one benchmark")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer samples")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target was missed")
    parser.add_argument("--dir", type=Path, help="where the files lie while it runs: the disk that is measured")
    return parser


async def run_all(names: Sequence[str], scale: Scale, folder: Path | None = None) -> Report:
    """Run benchmarks one after the other, each in a fresh folder below `folder` (the system's for temporary files)."""
    figures: dict[str, list[Figure]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as place:
        machine = describe(Path(place))
        for name in names:
            own = Path(place) / name.replace(" ", "-")
            own.mkdir()
            print(f"{name} …", file=sys.stderr, flush=True)
            try:
                figures[name] = await BENCHMARKS[name](scale, own)
            except Exception as error:
                # The others still run; the report names this one and the exit status tells.
                failed[name] = f"{type(error).__name__}: {error}"
    return Report(machine, figures, failed)


if __name__ == "__main__":
    sys.exit(main())
