"""RS-38: relay and endpoints need no network but their own: they work where there is no route to anywhere."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# The namespace has a loopback device of its own, which is down: without a tool for it, it is raised by an ioctl.
_PROGRAM = """
import asyncio, fcntl, json, signal, socket, struct, sys
from pathlib import Path
from sync_core import Endpoint

with socket.socket() as raiser:
    fcntl.ioctl(raiser, 0x8914, struct.pack("16sh", b"lo", 0x41))
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
except OSError:
    pass
else:
    sys.exit("there is a way out")


async def main(folder):
    relay = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "server_relay", "--db", str(folder / "relay.db"), "--port", "0", "--json",
        "--metrics-port", "0", stdout=asyncio.subprocess.PIPE,
    )
    url = f"ws://127.0.0.1:{json.loads(await relay.stdout.readline())['port']}"
    async with (
        Endpoint.open(folder / "phone.db", subject="acme", device="phone", relay=url) as phone,
        Endpoint.open(folder / "desk.db", subject="acme", device="desk", relay=url) as desk,
    ):
        async with phone.task("expense/TRIP-118", create=True) as task:
            await task.slots.confirm("amount", 249)
        await phone.synced(timeout_s=30)
        async with desk.task("expense/TRIP-118") as task:
            print(task.view.slots["amount"].value)
    relay.send_signal(signal.SIGTERM)
    await relay.wait()


asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("unshare"), reason="network namespaces are Linux's")
def test_a_task_is_carried_without_a_route_to_anywhere(tmp_path: Path) -> None:
    alone = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make a network namespace")
    command = [*alone, sys.executable, "-c", _PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "249"
