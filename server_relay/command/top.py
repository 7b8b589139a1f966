"""`segue relay top`: a running relay's figures, live, from its /metrics."""

import argparse
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from urllib.error import URLError
from urllib.request import urlopen

from server_relay.command.output import answer, fail, guarded

__all__ = ["Scrape", "read_scrape", "run", "table"]

_TIMEOUT_S = 5.0
_URL = "http://127.0.0.1:8701/metrics"
_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_PREFIX = "segue_relay_"

Scrape = dict[tuple[str, str], float]
"""Figures by (name, label), the label '' where there is none."""


def read_scrape(text: str) -> Scrape:
    """Return the figures of a scrape."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name.removeprefix(_PREFIX), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def table(now: Scrape, before: Scrape, span_s: float) -> list[str]:
    """Return the lines of the table; rates are those of the span between two scrapes, in seconds."""

    def value(name: str) -> float:
        return now.get((name, ""), 0.0)

    def rate(name: str) -> float:
        return (value(name) - before.get((name, ""), 0.0)) / span_s if before and span_s > 0 else 0.0

    lines = [
        f"up {value('uptime_seconds'):.0f} s, {value('connections'):.0f} connections,"
        f" {value('sockets'):.0f} sockets, {value('tasks_held'):.0f} tasks in memory",
        f"entries    {rate('entries_stored_total'):10.0f} /s   {value('entries_stored_total'):14.0f} since the start",
        f"read       {_bytes(rate('read_bytes_total')):>10} /s   {_bytes(value('read_bytes_total')):>14}"
        " since the start",
        f"written    {_bytes(rate('written_bytes_total')):>10} /s   {_bytes(value('written_bytes_total')):>14}"
        " since the start",
        f"commits    {rate('commits_total'):10.0f} /s   {_quantiles(now, before, 'commit')}",
        f"receipts   {'':10}      {_quantiles(now, before, 'receipt')}",
        f"waiting    {value('waiting_events'):10.0f} events {_bytes(value('waiting_bytes')):>11} in out-queues",
        f"store      {_bytes(value('store_bytes')):>10}      {_bytes(rate('store_bytes')):>12} /s growth;"
        f" {value('stored_tasks'):.0f} tasks, {value('stored_entries'):.0f} entries when last counted",
    ]
    for name, title in (("refusals_total", "refused"), ("poison_total", "poison"), ("claims_total", "claims")):
        counts = {label: count for (found, label), count in now.items() if found == name and count}
        told = ", ".join(f"{label} {count:.0f}" for label, count in counts.items())
        lines.append(f"{title:10} {told or 'nothing'}")
    alarms = [name for name in ("clock_suspended", "access_trouble") if value(name)]
    return [*lines, *(f"ATTENTION  {name.replace('_', ' ')}" for name in alarms)]


def _quantiles(now: Scrape, before: Scrape, name: str) -> str:
    """The bounds below which half and 99 of 100 spans lie, of the time between two scrapes."""
    buckets = sorted(
        (math.inf if label == "+Inf" else float(label), count - before.get((found, label), 0.0))
        for (found, label), count in now.items()
        if found == f"{name}_seconds_bucket"
    )
    total = buckets[-1][1] if buckets else 0.0
    if not total:
        return "none"
    halves = (next(bound for bound, count in buckets if count >= share * total) for share in (0.5, 0.99))
    return "p50 ≤ {:g} ms, p99 ≤ {:g} ms".format(*(bound * 1000 for bound in halves))


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Show the table until Ctrl-C, or once; return the exit status."""
    parser = argparse.ArgumentParser(prog="segue relay top", description="Watch a running relay's figures.")
    parser.add_argument("--url", default=_URL, help=f"where they are, see the relay's --metrics-port ({_URL})")
    parser.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="how often to look (2)")
    parser.add_argument("--once", action="store_true", help="look once and end")
    parser.add_argument("--json", action="store_true", help="look once and print one document for programs")
    options = parser.parse_args(argv[1:])
    if not options.url.startswith(("http://", "https://")) or not options.every > 0:
        parser.error("the URL begins with http://, and SECONDS is above 0")

    def watched() -> int:
        try:
            return _watch(options.url, options.every, options.once, options.json)
        except BrokenPipeError:
            # Whoever read the table has seen enough; nothing more is flushed at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (URLError, OSError, ValueError) as error:
            sentence = f"There are no figures at {options.url} ({type(error).__name__})."
            hint = "Start the relay with --metrics-port."
            return fail({"code": "no_figures", "sentence": sentence, "hint": hint}, f"{sentence} {hint}", options.json)
        except KeyboardInterrupt:
            return 0

    return guarded(watched, options.json)


def _watch(url: str, every_s: float, once: bool, as_json: bool) -> int:
    before: Scrape = {}
    read_s = 0.0
    while True:
        with urlopen(url, timeout=_TIMEOUT_S) as response:
            now = read_scrape(response.read().decode())
        span_s, read_s = time.monotonic() - read_s, time.monotonic()
        if as_json:
            document = {f"{name}:{label}" if label else name: value for (name, label), value in now.items()}
            return answer(document, (), True)
        if sys.stdout.isatty() and not once:
            print(_HOME_AND_CLEAR, end="")
        answer({}, table(now, before, span_s), False)
        if once:
            return 0
        before = now
        time.sleep(every_s)
