"""`python -m tests.simulation`: run seeded schedules, then the mutants.

Exits 1 if a promise was broken or a mutant got away, and prints the command that repeats it.

`--seconds N` runs fresh seeds for a while. `--schedules N` runs the seeds that once broke a promise and N fixed ones:
every run of the same code ends alike, however busy the machine is. `--seed N` runs one schedule and prints its hash.
"""

import argparse
import json
import secrets
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import msgspec

from tests.simulation.mutants import MUTANTS, Caught, hunt
from tests.simulation.schedule import run_seed
from tests.simulation.seeds import REGRESSIONS
from tests.simulation.world import Result

__all__ = ["Campaign", "main", "run_campaign"]

_CHUNK = 20
_FRESH_SEEDS = 10**9


class Campaign(msgspec.Struct):
    """What a run came to. `first` is the first seed of the row that was run, `seconds` is real time."""

    first: int = 0
    seconds: float = 0.0
    schedules: int = 0
    steps: int = 0
    messages: int = 0
    ops: int = 0
    faults: int = 0
    violations: list[Result] = []
    mutants: list[Caught] = []

    @property
    def failed(self) -> bool:
        """Whether a promise was broken, or a mutant got away."""
        return bool(self.violations) or any(not caught.seed_found for caught in self.mutants)


def _run_chunk(seeds: range | tuple[int, ...]) -> list[Result]:
    return [run_seed(seed) for seed in seeds]


def _counted(first: int, schedules: int) -> Iterator[range | tuple[int, ...]]:
    yield tuple(seed for seed, _ in REGRESSIONS)
    end = first + schedules
    for start in range(first, end, _CHUNK):
        yield range(start, min(start + _CHUNK, end))


def _timed(first: int, seconds: float) -> Iterator[range]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield range(first, first + _CHUNK)
        first += _CHUNK


def run_campaign(first: int, jobs: int, chunks: Iterable[range | tuple[int, ...]]) -> Campaign:
    """Run the schedules of chunks of seeds, in so many processes."""
    started = time.monotonic()
    campaign = Campaign(first)
    with ProcessPoolExecutor(jobs) as pool:
        waiting: deque[Future[list[Result]]] = deque()
        for seeds in chunks:
            waiting.append(pool.submit(_run_chunk, seeds))
            if len(waiting) >= jobs * 2:
                _collect(campaign, waiting.popleft().result())
        for future in waiting:
            _collect(campaign, future.result())
    campaign.seconds = time.monotonic() - started
    return campaign


def _collect(campaign: Campaign, results: list[Result]) -> None:
    for result in results:
        campaign.schedules += 1
        campaign.steps += result.steps
        campaign.messages += result.messages
        campaign.ops += result.ops
        campaign.faults += result.faults
        if result.violation:
            campaign.violations.append(result)


def _hunt_all(jobs: int) -> list[Caught]:
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(hunt, [mutant.name for mutant in MUTANTS]))


def _print(campaign: Campaign, jobs: int) -> None:
    if campaign.schedules:
        rate = campaign.schedules / campaign.seconds / jobs
        spent = f"{campaign.seconds:.1f} s, {rate:.0f} a second and core"
        print(f"{campaign.schedules} schedules, seeds from {campaign.first} on ({spent})")
        print(f"{campaign.ops} writes, {campaign.messages} messages, {campaign.faults} faults, {campaign.steps} steps")
    for result in campaign.violations[:20]:
        print(f"BROKEN seed {result.seed}: {result.violation}")
        print(f"  repeat: python -m tests.simulation --seed {result.seed}")
    if campaign.violations[20:]:
        print(f"… and {len(campaign.violations) - 20} more")
    for caught in campaign.mutants:
        print(f"{'caught ' if caught.seed_found else 'ESCAPED'} {caught.name:34} {caught.line()}")
    if not campaign.failed:
        print("every promise held")


def _one(seed: int, as_json: bool) -> int:
    result = run_seed(seed)
    if as_json:
        print(json.dumps(msgspec.to_builtins(result)))
    else:
        print(f"seed {seed}: {result.ops} writes, {result.messages} messages, {result.virtual_ms} ms of virtual time")
        print(f"wire hash {result.wire_hash}")
        print(result.violation or "every promise held")
    return 1 if result.violation else 0


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments, run, print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--seconds", type=float, default=60.0, help="real seconds of schedules of fresh seeds")
    amount.add_argument("--schedules", type=int, help="so many fixed schedules instead, and the seeds once broken")
    amount.add_argument("--seed", type=int, help="run this one schedule and print its wire hash")
    amount.add_argument("--mutants", action="store_true", help="only hunt the mutants")
    parser.add_argument("--first", type=int, help="first seed; 0 for fixed schedules, else drawn")
    parser.add_argument("--no-mutants", action="store_true", help="only run schedules of the real code")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _one(given.seed, given.json)
    campaign = Campaign()
    if given.schedules is not None:
        first = given.first or 0
        campaign = run_campaign(first, given.jobs, _counted(first, given.schedules))
    elif not given.mutants:
        first = secrets.randbelow(_FRESH_SEEDS) if given.first is None else given.first
        campaign = run_campaign(first, given.jobs, _timed(first, given.seconds))
    if not given.no_mutants:
        campaign.mutants = _hunt_all(given.jobs)
    if given.json:
        print(json.dumps({**msgspec.to_builtins(campaign), "failed": campaign.failed}))
    else:
        _print(campaign, given.jobs)
    return 1 if campaign.failed else 0


if __name__ == "__main__":
    sys.exit(main())
