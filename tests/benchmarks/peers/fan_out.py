"""W1 and W2: how many updates a second reach the others of a room, with 99 % of them within 100 ms.

The load is open: each update has its time by schedule, and its latency counts from that time, so a server that falls
behind cannot hide it. The rate rises by 1.6 until a step fails, then it is halved in twice.
"""

import gc
import time

import msgspec

from tests.benchmarks.peers.load import NOW, Load
from tests.benchmarks.peers.targets import Server, cpu_seconds, quiet
from tests.benchmarks.peers.yjs import marked, marks_of

__all__ = ["FanOut", "Step", "many_rooms", "one_room", "percentile"]

P99_MS_MAX = 100.0
_ARRIVED_MIN = 0.999
_FACTOR = 1.6
_BURST = 64


class Step(msgspec.Struct, frozen=True):
    """One rate, held for a while. Rates are a second; processor time is of the server alone, in cores."""

    rate: float
    sent: int
    arrived: int
    delivered_rate: float
    p50_ms: float
    p99_ms: float
    bytes_per_delivery: float
    server_cores: float
    load_cores: float
    other_cores: float
    lost_connections: int
    ok: bool


class FanOut(msgspec.Struct, frozen=True):
    """The highest rate that passed, and the first that did not (None if none was tried)."""

    best: Step | None
    failed: Step | None


def one_room(server: Server, seconds: float) -> FanOut:
    """W1: 50 clients in one room, all writing."""
    return _Ramp(server, rooms=1, per_room=50, writers_per_room=50, seconds=seconds).run(server.target.rates[0])


def many_rooms(server: Server, seconds: float) -> FanOut:
    """W2: 500 rooms of two clients, one of which writes."""
    return _Ramp(server, rooms=500, per_room=2, writers_per_room=1, seconds=seconds).run(server.target.rates[1])


class _Ramp:
    def __init__(self, server: Server, *, rooms: int, per_room: int, writers_per_room: int, seconds: float) -> None:
        self._server = server
        self._rooms = rooms
        self._per_room = per_room
        self._writers_per_room = writers_per_room
        self._seconds = seconds
        self._load: Load | None = None

    def run(self, start: float) -> FanOut:
        best, failed, rate = None, None, start
        self._begin(rate)
        for _ in range(16):
            step = self._tried(rate)
            if step.ok:
                best = step
                if failed is not None:
                    break
                rate *= _FACTOR
            else:
                failed = step
                if best is not None:
                    break
                rate /= _FACTOR**2
        for _ in range(2):
            if best is None or failed is None or failed.rate / best.rate < 1.08:
                break
            step = self._tried((best.rate * failed.rate) ** 0.5)
            best, failed = (step, failed) if step.ok else (best, step)
        if self._load is not None:
            self._load.close()
        return FanOut(best, failed)

    def _begin(self, rate: float) -> None:
        """A fresh server with all its clients, warmed up: a just-in-time compiler must not be measured cold."""
        if self._load is not None:
            self._load.close()
        self._load = load = self._server.fresh()
        # One client per room first: some peers hang clients that open a new room at the same time.
        names = [f"r{number}" for number in range(self._rooms)]
        firsts = load.open_all(names)
        others = load.open_all([name for name in names for _ in range(self._per_room - 1)], first=len(firsts))
        share = self._per_room - 1
        rooms = [[one, *others[at * share : (at + 1) * share]] for at, one in enumerate(firsts)]
        self._clients = [client for room in rooms for client in room]
        self._writers = [client for room in rooms for client in room[: self._writers_per_room]]
        for client in self._clients:
            client.counting = True
        for part in (0.2, 0.4):
            self._step(max(20.0, rate * part), 1.2)

    def _tried(self, rate: float) -> Step:
        """Hold a rate; one that failed while the machine was busy is tried again on a fresh server."""
        for _ in range(3):
            step = self._step(rate, self._seconds)
            print(
                f"    {rate:9,.0f}/s  {'ok  ' if step.ok else 'fail'}  {step.delivered_rate:11,.0f} delivered/s"
                f"  p99 {step.p99_ms:6.1f} ms  server {step.server_cores:.2f}  load {step.load_cores:.2f}"
                f"  others {step.other_cores:.2f}  lost {step.lost_connections}",
                flush=True,
            )
            if step.ok:
                return step
            self._begin(rate)
            if step.other_cores < 0.2 and step.p99_ms > 3 * P99_MS_MAX:
                break
        return step

    # --- one step -----------------------------------------------------------------------------------------------------

    def _step(self, rate: float, seconds: float) -> Step:
        load, server = self._load, self._server
        assert load is not None
        for client in self._clients:
            client.chunks, client.messages, client.bytes = [], 0, 0
        load.marks = 0
        gc.collect()
        gc.disable()
        quiet(load.run_for)
        used = (server.cpu_s(), time.process_time(), cpu_seconds())
        began = NOW()
        sent = self._send(load, rate, max(1, int(rate * seconds)), seconds)
        ended = NOW()
        own, its = time.process_time() - used[1], server.cpu_s() - used[0]
        others = max(0.0, cpu_seconds() - used[2] - own - its)
        wall = ended - began
        self._drain(load, sent)
        gc.enable()
        latencies, in_time = self._latencies(ended)
        expected = sent * (self._per_room - 1)
        lost = sum(client.closed for client in self._clients)
        p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
        return Step(
            rate=rate,
            sent=sent,
            arrived=len(latencies),
            delivered_rate=in_time / wall,
            p50_ms=p50,
            p99_ms=p99,
            bytes_per_delivery=sum(client.bytes for client in self._clients) / max(1, len(latencies)),
            server_cores=its / wall,
            load_cores=own / wall,
            other_cores=others / wall,
            lost_connections=lost,
            ok=not lost and len(latencies) >= expected * _ARRIVED_MIN and p99 <= P99_MS_MAX,
        )

    def _send(self, load: Load, rate: float, count: int, seconds: float) -> int:
        """Send on schedule; returns how many were sent before time was up."""
        writers, write, gap = self._writers, load.dialect.write, 1.0 / rate
        # Reading in larger chunks adds less than a millisecond and lets one core read more.
        pause = 0.0005 if rate * self._per_room > 40_000 else 0.0
        first = NOW() + 0.01
        hard_end = first + seconds * 2 + 1
        sent = 0
        while sent < count and (now := NOW()) < hard_end:
            burst = 0
            due = first + sent * gap
            while due <= now and sent < count and burst < _BURST:
                client = writers[sent % len(writers)]
                client.seq += 1
                client.send(write(client, client.key, marked(client.number & 0xFFFF, due, client.seq)))
                sent += 1
                burst += 1
                due = first + sent * gap
            if pause and due > NOW():
                time.sleep(pause)
            load.poll(0 if due <= now else min(due - now, 0.01))
        return sent

    def _drain(self, load: Load, sent: int) -> None:
        """Wait for what is on its way, until nothing more comes: who echoes sends more than the others need."""
        wanted = sent * (self._per_room - 1)
        end, last, since = NOW() + 3.0, -1, NOW()
        while NOW() < end:
            load.poll(0.02)
            if load.marks != last:
                last, since = load.marks, NOW()
            elif NOW() - since > (0.2 if load.marks >= wanted else 1.0):
                return

    def _latencies(self, ended: float) -> tuple[list[float], int]:
        """Return the latency of each delivery to another client, ms, and how many came while sending went on."""
        found: list[float] = []
        in_time = 0
        for client in self._clients:
            own = client.number & 0xFFFF
            for at, marks in client.chunks:
                foreign = [(at - due) * 1e3 for sender, due, _ in marks_of(marks) if sender != own]
                found += foreign
                in_time += len(foreign) if at <= ended else 0
        return found, in_time


def percentile(values: list[float], part: float) -> float:
    """Return the value below which this part of all values lies; infinite without any."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("inf")
