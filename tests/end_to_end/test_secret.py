"""A value flagged secret is in no log, error text, metric, export, brief, report or text for a model (AC-30b).

Two devices, a relay and the command line do everything that touches such a value, also what goes wrong, and every text
that comes out is searched for it. The value itself stays where it belongs: in `.value`, the tools and the files.
"""

import html
import io
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import pytest

from server_relay.config import RelaySettings
from server_relay.server import RelayServer, serve
from sync_core import (
    Effect,
    Endpoint,
    HandedOver,
    KeyReused,
    NeedsApproval,
    PlannedCall,
    PreconditionFailed,
    SegueError,
    SlotChanged,
    Task,
    TooLarge,
    ValueRefused,
    tool,
)
from sync_core.document.calls import CallState
from sync_core.endpoint.link import Backoff
from tests.end_to_end.command_line import TASK, Device, running_relay

OWN, OTHER, PART, BAD = "zq-mine-7731", "zq-theirs-7732", "zq-part-7733", "ZQ BAD 7734 &<"
SECRETS = (OWN, OTHER, PART, BAD)


@tool(effect=Effect.READ)
def sign_in(pin: str) -> str:
    """Answer with what it was given, as careless tools do."""
    return f"signed in with {pin}"


@tool(effect=Effect.READ)
def broken(pin: str) -> str:
    raise RuntimeError(f"no such PIN: {pin}")


@tool(effect=Effect.IRREVERSIBLE, approval=True)
def pay(pin: str, *, idempotency_key: str) -> str:
    return pin


class Said:
    """Every text that came out, by where it came from."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def __call__(self, where: str, *things: object) -> None:
        for thing in things:
            self.texts += [(where, str(thing)), (where, repr(thing))]

    async def refused(self, work: Awaitable[object], error: type[SegueError]) -> None:
        """Keep all that an expected error says, and what a log of it would show."""
        with pytest.raises(error) as raised:
            await work
        told = raised.value
        self(f"the error {told.code}", told, told.as_json(), told.hint)
        self(f"the traceback of {told.code}", "".join(traceback.format_exception(told)))

    def leaks(self) -> set[tuple[str, str]]:
        """Where one of the values stands, as it is, or as an escaped text or a dump of bytes shows it."""
        forms = [(each, form) for each in SECRETS for form in (each, html.escape(each), each.encode().hex(" "))]
        return {(where, secret) for where, text in self.texts for secret, form in forms if form in text}


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def log(said: Said) -> Iterator[None]:
    """Every logger of the process, as talkative as it can be."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield
    root.removeHandler(handler)
    root.setLevel(level)
    assert stream.getvalue(), "nothing was logged at all, so nothing was tested"
    said("the log", stream.getvalue())
    assert said.leaks() == set()


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RelayServer]:
    server = await serve(RelaySettings(db=tmp_path / "relay.db", port=0))
    yield server
    await server.close()


async def device(folder: Path, url: str, name: str) -> Endpoint:
    (folder / name).mkdir(exist_ok=True)
    return await Endpoint.open(
        folder / name / "acme.db",
        subject="acme",
        device=name,
        relay=url,
        tools=[sign_in, broken, pay],
        backoff=Backoff(0.02, 0.1),
    )


async def write_everywhere(task: Task, said: Said) -> None:
    """Put the value wherever a careless program or person puts one, and get it refused in every way."""
    said("a slot", await task.slots.declare("pin", ask="PIN?", schema={"type": "string", "maxLength": 60}, secret=True))
    said("a slot", await task.slots.declare("cards", ask="Cards?", secret=True))
    said("a slot", await task.slots.propose("pin", OTHER), await task.slots.confirm("pin", OWN, source=f"said {OWN}"))
    said("a slot", await task.slots.confirm("cards", {"first": [PART, 1], "second": BAD}))
    await said.refused(task.slots.confirm("pin", BAD * 10), ValueRefused)
    await said.refused(task.slots.confirm("pin", [OWN]), ValueRefused)
    await said.refused(task.slots.confirm("cards", {OWN: {PART: object()}}), ValueRefused)
    await said.refused(task.slots.propose("cards", OWN * 1_000), TooLarge)
    assert await task.call("sign-in", sign_in, OWN) == f"signed in with {OWN}"
    await said.refused(task.call("sign-in", sign_in, OTHER), KeyReused)
    with pytest.raises(RuntimeError):
        await task.call("broken", broken, PART)
    await said.refused(task.call("pay", pay, OWN), NeedsApproval)
    await task.plan("later", sign_in, pin=OWN)
    await task.notes.write("worklog", f"The PIN is {OWN}.")
    await said.refused(task.notes.edit("worklog", OTHER, PART), ValueRefused)
    with pytest.raises(PreconditionFailed) as stale:
        await task.notes.write("worklog", PART, content_sha256="0" * 64)
    said("the stale error", stale.value.sentence, stale.value.hint, stale.value.as_json())
    await task.history.append({"role": "user", "content": f"It is {OWN}."})
    await task.hand_over(f"Use {OWN} and {BAD}.")
    await said.refused(task.hand_over(OTHER), HandedOver)


async def ask_everything(endpoint: Endpoint, task: Task, said: Said) -> None:
    """Take every text that is for a model, a log, an audit or a status page."""
    for view in ("work", "confirm"):
        brief = task.brief(view=view)  # type: ignore[arg-type]
        said(f"the brief to {view}", brief.text, brief.json, json.dumps(brief.json))
    asked = PlannedCall("item/0", 1, "slot_list", "{}", (), CallState.PLANNED, "t1")
    said("what a model is told of the slots", await task.run(asked))
    said("the model's tools", task.model_tools(), endpoint.tools())
    said("slots", *task.slots.missing(), *task.slots.conflicted(), *(slot for _, slot in task.slots.items()))
    said("an explanation", *(task.explain(path) for path in ("slots/pin", "slots/cards", "calls/sign-in", "handover")))
    async for line in endpoint.export(TASK):
        said("the export", json.dumps(line))
    report = await task.replay()
    assert report.equal
    said("the replay's report", report.gaps, report.streams, report.view.slots)
    said("the status", endpoint.status, await endpoint.stats(), task, endpoint)
    async for info in endpoint.tasks():
        said("the listing", info)


async def test_a_secret_value_is_in_no_text_that_comes_out(
    tmp_path: Path, relay: RelayServer, said: Said, log: None
) -> None:
    url = f"ws://127.0.0.1:{relay.port}"
    phone, desktop = await device(tmp_path, url, "phone"), await device(tmp_path, url, "desktop")
    here = await phone.task(TASK, create=True)
    changes = here.changes()
    await write_everywhere(here, said)
    await phone.synced(timeout_s=10)
    there = await desktop.task(TASK)
    said("a conflict", await there.slots.confirm("pin", OTHER, read=frozenset()))
    await desktop.synced(timeout_s=10)
    await phone.synced(timeout_s=10)
    assert here.slots["pin"].state.value == "conflicted"
    for endpoint, task in ((phone, here), (desktop, there)):
        await ask_everything(endpoint, task, said)
    said("a resolved slot", await here.slots.resolve("pin", here.slots["pin"].candidates[0]))
    said("a cleared slot", await here.slots.clear("cards"))
    # What was a secret value once is one in every export for good.
    said("the export", *[json.dumps(line) async for line in phone.export(TASK)])
    await phone.synced(timeout_s=10)
    await desktop.aclose()
    await phone.aclose()
    async for change in changes:
        # Whoever watches is given what changed; of a slot, whose value may be secret, its text shows none.
        if isinstance(change, SlotChanged):
            said("a change", change)
    said("the relay's figures", await relay.metrics())
    assert {where for where, _ in said.texts} >= {
        "the export",
        "the replay's report",
        "the relay's figures",
        "a change",
    }
    assert said.leaks() == set()


async def test_the_command_line_shows_a_secret_as_set(tmp_path: Path, said: Said) -> None:
    # In a process of its own, because the commands are waited for.
    with running_relay(tmp_path, "--port", "0") as url:
        async with await device(tmp_path, url, "phone") as phone, phone.task(TASK, create=True) as task:
            await write_everywhere(task, said)
            await phone.synced(timeout_s=10)
        run_commands(Device(tmp_path / "cli", "cli", url), said)
    assert said.leaks() == set()


def run_commands(segue: Device, said: Said) -> None:
    commands = [
        ("show", TASK),
        ("show", TASK, "--json"),
        ("brief", TASK),
        ("slot", "list", TASK),
        ("slot", "confirm", TASK, "pin", PART, "--json"),
        ("replay", TASK),
        ("export", TASK),
    ]
    for command in commands:
        done = segue.run(*command)
        assert done.status in (0, 1), done
        assert done.out
        said(f"segue {' '.join(command)}".replace(PART, "PART"), done.out, done.err)
