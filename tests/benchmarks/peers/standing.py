"""W4, W5 and W6: what an idle connection costs, what a kill loses, and how fast everybody is back after one."""

import time

import msgspec

from tests.benchmarks.peers.load import NOW, Client, Load
from tests.benchmarks.peers.targets import Server, quiet
from tests.benchmarks.peers.yjs import marked, numbers_in

__all__ = ["Idle", "Kill", "Storm", "idle", "kill", "storm"]

IDLE_CONNECTIONS = 2_000
ROOMS, PER_ROOM = 100, 5


class Idle(msgspec.Struct, frozen=True):
    """Resident memory of an idle connection in a room of its own, and connections made a second."""

    kib_per_connection: float
    connects_rate: float


class Kill(msgspec.Struct, frozen=True):
    """After SIGKILL: how many updates that had been confirmed were lost, over all tries.

    `confirmed`: told to another client or, where the server has receipts, receipted.
    """

    tries: int
    confirmed: int
    lost: int


class Storm(msgspec.Struct, frozen=True):
    """Seconds from the kill until 500 clients in 100 rooms were in sync again, each trying again every 0.1 s."""

    total_s: float
    attempts: int
    never: int


def idle(server: Server) -> Idle:
    """W4."""
    load = server.fresh()
    time.sleep(0.5)
    before, began = server.memory_bytes(), NOW()
    load.open_all([f"idle{number}" for number in range(IDLE_CONNECTIONS)], timeout_s=120)
    took = NOW() - began
    load.run_for(3.0)
    used = server.memory_bytes() - before
    load.close()
    return Idle(used / IDLE_CONNECTIONS / 1024, IDLE_CONNECTIONS / took)


def kill(server: Server, tries: int) -> Kill:
    """W5: 1,000 updates at 1,000 a second, SIGKILL as soon as the last one is confirmed, start, read."""
    confirmed = lost = 0
    for number in range(tries):
        told, have = _kill_once(server, 1_000, 1_000.0, number)
        confirmed += len(told)
        lost += len(told - have)
    return Kill(tries, confirmed, lost)


def _kill_once(server: Server, count: int, rate: float, number: int) -> tuple[set[int], set[int]]:
    load = server.fresh()
    writer, reader = load.open_all(["kill"], first=2 * number) + load.open_all(["kill"], first=2 * number + 1)
    told: set[int] = set()
    reader.on_body = lambda body: told.update(numbers_in(body))
    began = NOW()
    for update in range(count):
        while NOW() < began + update / rate:
            load.poll(max(0.0, min(began + update / rate - NOW(), 0.01)))
        writer.send(load.dialect.write(writer, f"d{update}", marked(1, 0.0, update)))
        load.poll(0)
    load.run_until(lambda: len(told) == count, 20)
    server.kill()
    load.close()
    # A receipt names the writer's first numbers, in order.
    told |= set(range(writer.receipts)) if not load.dialect.echoes else set()
    server.start()
    load = server.load()
    bodies: list[bytes] = []
    client = load.open("kill", 40_000 + number)
    client.on_body = bodies.append
    load.run_until(lambda: client.synced or client.closed, 60)
    load.close()
    return told, numbers_in(b"".join(bodies))


def storm(server: Server) -> Storm:
    """W6."""
    load = server.fresh()
    names = [f"s{room}" for _ in range(PER_ROOM) for room in range(ROOMS)]
    clients = load.open_all(names[:ROOMS])
    for client in clients:
        items = [(f"k{number}", marked(client.number, 0.0, number)) for number in range(20)]
        client.send(load.dialect.seed(client, items))
    clients += load.open_all(names[ROOMS:], first=ROOMS)
    load.run_for(3.0)
    quiet(load.run_for)
    began = NOW()
    server.kill()
    server.start(wait=False)
    attempts, left = _come_back(load, names, began)
    took = NOW() - began
    load.close()
    return Storm(took, attempts, left)


def _come_back(load: Load, names: list[str], began: float, delay_s: float = 0.1) -> tuple[int, int]:
    """Open every client until it is in sync; returns how many attempts that took, and how many never were."""
    pending: dict[int, Client | None] = dict.fromkeys(range(len(names)))
    due = [began + delay_s] * len(names)
    attempts = 0
    while pending and NOW() - began < 60:
        now = NOW()
        for number, client in list(pending.items()):
            if client is not None and client.synced:
                del pending[number]
            elif client is None and due[number] <= now:
                pending[number] = load.open(names[number], number)
                attempts += 1
            elif client is not None and (client.closed or now - client.began > 5.0):
                client.close()
                pending[number], due[number] = None, now + delay_s
        load.poll(0.005)
    return attempts, len(pending)
