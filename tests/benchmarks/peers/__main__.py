"""`python -m tests.benchmarks.peers`: the relay against its peers, with one load, in one run.

The peers are installed by `make bench-peers`. Server and load take one core each, so nothing else should run.
"""

import argparse
import datetime
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.benchmarks.machine import describe
from tests.benchmarks.peers.catching_up import catch_up
from tests.benchmarks.peers.fan_out import many_rooms, one_room
from tests.benchmarks.peers.receipts import receipts
from tests.benchmarks.peers.report import OWN, Results, as_json, as_markdown
from tests.benchmarks.peers.standing import idle, kill, storm
from tests.benchmarks.peers.targets import TARGETS, Server

__all__ = ["main"]

_SERVER_CORE, _LOAD_CORE = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen servers and print the table, on Ctrl-C of what there is; returns 1 if a workload failed."""
    options = _parser().parse_args(argv)
    workloads: dict[str, Callable[[Server], object]] = {
        "w1": lambda server: one_room(server, options.seconds),
        "w2": lambda server: many_rooms(server, options.seconds),
        "w3": catch_up,
        "w4": idle,
        "w5": lambda server: kill(server, options.kills),
        "w6": storm,
        "receipts": lambda server: receipts(server, options.seconds),
    }
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        machine = describe(Path(folder))
    _prepare()
    results: dict[str, Results] = {}
    try:
        for name in options.only or list(TARGETS):
            results[name] = Results()
            for workload in options.work or list(workloads):
                if _applies(name, workload):
                    _measure(name, workload, workloads[workload], results[name], options.peers)
    except KeyboardInterrupt:
        print("stopped: this is what was measured until then", file=sys.stderr)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(as_json(machine, date, results) if options.json else as_markdown(machine, date, results))
    return int(any(one.failed for one in results.values()))


def _applies(name: str, workload: str) -> bool:
    target = TARGETS[name]
    if workload == "receipts":
        return name == OWN
    return (workload != "w5" or target.stores) and (workload != "w3" or target.dialect.has_sync)


def _measure(name: str, workload: str, measure: Callable[[Server], object], result: Results, peers: Path) -> None:
    print(f"{name} {workload} …", file=sys.stderr, flush=True)
    server = Server(name, peers, _SERVER_CORE)
    try:
        setattr(result, workload, measure(server))
    except Exception as error:
        # One workload that fails does not end the rest; the report says so.
        result.failed[workload] = f"{type(error).__name__}: {error}"
    finally:
        server.close()


def _prepare() -> None:
    """Keep the load on its own core, and let it have thousands of sockets."""
    os.sched_setaffinity(0, {_LOAD_CORE})
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--peers", type=Path, default=Path(".bench/peers"), help="where install.sh put them")
    parser.add_argument("--only", action="append", choices=list(TARGETS), metavar="SERVER", help="one of the servers")
    parser.add_argument("--work", action="append", metavar="WORKLOAD", help="w1 … w6 or receipts")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each rate is held")
    parser.add_argument("--kills", type=int, default=5, help="kills in W5")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
