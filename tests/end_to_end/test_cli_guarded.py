"""`segue approvals, approve, reject, doubts, settle, explain, lift-barrier` in processes of their own.

An agent runs here, on a device of its own; people decide with the command line on theirs; the relay checks tokens.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from server_relay.tokens import make_token
from sync_core import CallState, Endpoint, InDoubt, NeedsApproval, RecordedCall, Task, tool
from sync_core.parts import Role
from tests.end_to_end.command_line import TASK, Device, running_relay

SECRET = "a secret of at least thirty-two bytes, for tests"
FAR_S = 4_000_000_000


class Bank:
    """What cannot be undone: payments that were made, and whether the next one breaks off."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.breaks = False


BANK = Bank()


@tool(approval=True)
async def pay(amount: str, *, idempotency_key: str = "") -> str:
    BANK.paid.append(amount)
    return f"paid {amount}"


@tool
async def order(part: str, *, idempotency_key: str = "") -> str:
    raise ConnectionError("the line broke")


class People:
    """Devices of one subject, each signed in as somebody with a role."""

    def __init__(self, folder: Path, relay: str) -> None:
        self._folder = folder
        self.relay = relay

    def token(self, device: str, role: Role) -> str:
        return make_token(
            SECRET, principal=f"{device}-owner", device=device, subject="acme", role=role, expires_s=FAR_S
        )

    def device(self, name: str, role: Role) -> Device:
        return Device(self._folder / name, name, self.relay, token=self.token(name, role))

    def agent(self, work: Callable[[Task], Awaitable[None]]) -> None:
        """Let an agent work on the task, on its own device, until all of it is at the relay."""

        async def run() -> None:
            async with (
                Endpoint.open(
                    self._folder / "agent.db",
                    subject="acme",
                    device="agent",
                    relay=self.relay,
                    token=self.token("agent", Role.WRITE),
                    tools=[pay, order],
                ) as agent,
                agent.task(TASK, create=True) as task,
            ):
                await agent.synced(timeout_s=20)
                await work(task)
                await agent.synced(timeout_s=20)

        asyncio.run(run())


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    BANK.paid.clear()
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    with running_relay(tmp_path, "--port", "0", "--auth", str(secret)) as url:
        yield People(tmp_path, url)


async def ask_to_pay(task: Task) -> None:
    with pytest.raises(NeedsApproval):
        await task.call("pay", pay, "100")


async def break_off(task: Task) -> None:
    with pytest.raises(ConnectionError):
        await task.call("order", order, "a valve")
    with pytest.raises(InDoubt):
        await task.call("order", order, "a valve")


# --- approvals --------------------------------------------------------------------------------------------------------


def test_a_call_waits_is_approved_on_another_device_and_runs_once(people: People) -> None:
    people.agent(ask_to_pay)
    manager = people.device("manager", Role.APPROVE)
    unopened = manager.json("approvals")
    assert (unopened["approvals"], unopened["tasks_not_looked_at"]) == ([], 1)
    assert "not looked at: 1" in manager.run("approvals").out
    everywhere = manager.json("approvals", "--everywhere")
    [request] = everywhere["approvals"]
    assert everywhere["tasks_not_looked_at"] == 0
    assert manager.json("approvals", TASK)["approvals"] == manager.json("approvals")["approvals"] == [request]
    assert (request["tool"], request["arguments"], request["state"]) == ("pay", {"amount": "100"}, "waiting")
    assert request["genuine"] is True and request["device"] == "agent"
    told = manager.run("approvals", TASK)
    assert told.status == 0 and 'pay {"amount":"100"}' in told.out and "segue approve TASK REQUEST" in told.out
    given = manager.json("approve", TASK, request["request"][:6])["approval"]
    assert (given["state"], given["by"]) == ("approved", "manager-owner")

    async def pay_now(task: Task) -> None:
        assert await task.call("pay", pay, "100") == "paid 100"
        assert await task.call("pay", pay, "100") == "paid 100"

    people.agent(pay_now)
    assert BANK.paid == ["100"]
    assert manager.json("approvals", TASK)["approvals"] == []
    [used] = manager.json("approvals", "--all")["approvals"]
    assert (used["task"], used["state"]) == (TASK, "used")
    assert "No call waits for a person." in manager.run("approvals").out


def test_a_rejected_call_does_not_run_and_its_agent_hears_why(people: People) -> None:
    people.agent(ask_to_pay)
    manager = people.device("manager", Role.APPROVE)
    [request] = manager.json("approvals", TASK)["approvals"]
    told = manager.run("reject", TASK, request["request"], "--reason", "too much")
    assert told.status == 0 and "Step pay is rejected, by manager-owner." in told.out

    async def try_again(task: Task) -> None:
        with pytest.raises(NeedsApproval, match="too much"):
            await task.call("pay", pay, "100")

    people.agent(try_again)
    assert BANK.paid == []
    assert manager.json("approve", TASK, request["request"])["approval"]["state"] == "approved"


def test_an_approval_given_offline_counts_once_it_reached_the_relay(people: People) -> None:
    people.agent(ask_to_pay)
    manager = people.device("manager", Role.APPROVE)
    [request] = manager.json("approvals", TASK)["approvals"]
    waiting = manager.run("approve", TASK, request["request"], "--relay", "none")
    assert waiting.status == 0 and "it counts when the relay has ruled on it" in waiting.out
    manager.json("tasks")
    assert [each["state"] for each in manager.json("approvals", TASK, "--all")["approvals"]] == ["approved"]


def test_who_may_not_approve_is_refused(people: People) -> None:
    people.agent(ask_to_pay)
    clerk = people.device("clerk", Role.WRITE)
    [request] = clerk.json("approvals", TASK)["approvals"]
    assert clerk.json("approve", TASK, request["request"], status=1)["error"]["code"] == "read_only"
    assert clerk.json("approve", TASK, "0000", status=2)["error"]["code"] == "wrong_usage"
    assert people.device("manager", Role.APPROVE).json("approvals", TASK)["approvals"][0]["state"] == "waiting"


def test_an_open_relay_cannot_tell_who_approves(phone: Device, tmp_path: Path) -> None:
    open_to_all = People(tmp_path, phone.environment["SEGUE_RELAY"])
    open_to_all.agent(ask_to_pay)
    [request] = phone.json("approvals", TASK)["approvals"]
    refused = phone.run("approve", TASK, request["request"])
    assert refused.status == 1, refused
    assert phone.json("approvals", TASK)["approvals"][0]["state"] == "waiting"


# --- doubts -----------------------------------------------------------------------------------------------------------


def test_a_call_in_doubt_is_shown_and_settled_by_a_person(people: People) -> None:
    people.agent(break_off)
    clerk = people.device("clerk", Role.WRITE)
    [doubt] = clerk.json("doubts")["doubts"]
    assert clerk.json("doubts", TASK)["doubts"] == [doubt]
    assert (doubt["step"], doubt["tool"], doubt["arguments"]) == ("order", "order", {"part": "a valve"})
    assert "the line broke" in doubt["why"]
    shown = clerk.run("doubts")
    assert shown.status == 0 and "the line broke" in shown.out and "segue settle TASK STEP" in shown.out
    told = clerk.run("settle", TASK, "order", "--happened", "--result", '"order 17"')
    assert (told.status, told.out) == (0, "Step order happened, by your verdict.\n")

    async def look(task: Task) -> None:
        call: RecordedCall = task.calls["order"]
        assert (call.state, await call.result()) == (CallState.DONE, "order 17")
        assert await task.call("order", order, "a valve") == "order 17"

    people.agent(look)
    assert clerk.json("doubts", TASK)["doubts"] == []
    assert clerk.json("settle", TASK, "order", "--happened", status=1)["error"]["code"]


def test_what_did_not_happen_is_not_run_again_where_nobody_checks_the_key(people: People) -> None:
    people.agent(break_off)
    clerk = people.device("clerk", Role.WRITE)
    settled = clerk.json("settle", TASK, "order", "--did-not-happen")
    assert settled["retired"] is True and settled["call"]["state"] == "failed"


def test_a_verdict_that_says_nothing_is_wrong_usage(people: People) -> None:
    people.agent(break_off)
    clerk = people.device("clerk", Role.WRITE)
    for arguments in ([], ["--did-not-happen", "--result", "1"], ["--happened", "--result", "{"]):
        assert clerk.json("settle", TASK, "order", *arguments, status=2)["error"]["code"] == "wrong_usage"
    assert len(clerk.json("doubts", TASK)["doubts"]) == 1


def test_nothing_is_settled_where_the_relay_cannot_be_reached(people: People) -> None:
    people.agent(break_off)
    clerk = people.device("clerk", Role.WRITE)
    clerk.json("doubts", TASK)
    refused = clerk.json("settle", TASK, "order", "--happened", "--relay", "none", status=1)
    assert refused["error"]["code"] == "needs_authority"


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_only_an_admin_lifts_the_barrier(people: People) -> None:
    people.agent(ask_to_pay)
    admin, clerk = people.device("admin", Role.ADMIN), people.device("clerk", Role.WRITE)
    assert admin.json("lift-barrier", status=2)["error"]["code"] == "wrong_usage"
    assert admin.json("lift-barrier", "--yes")["lifted"] is True
    assert clerk.json("lift-barrier", "--yes", status=1)["error"]["code"] == "read_only"
    assert admin.json("lift-barrier", "--yes", "--relay", "none", status=1)["error"]["code"] == "needs_authority"


def test_a_part_is_explained_from_the_table_that_is_enforced(people: People) -> None:
    people.agent(ask_to_pay)
    clerk, reader = people.device("clerk", Role.WRITE), people.device("reader", Role.READ)
    told: dict[str, Any] = clerk.json("explain", TASK, "slots/cost_center")["explanation"]
    assert (told["stream"], told["may_write"]) == ("state", True)
    assert reader.json("explain", TASK, "slots/cost_center")["explanation"]["may_write"] is False
    assert clerk.json("explain", TASK, "approvals")["explanation"]["roles"] == ["admin", "approve"]
    shown = clerk.run("explain", TASK, "rulings")
    assert shown.status == 0 and "may not write it" in shown.out and "roles        nobody" in shown.out
    assert clerk.json("explain", TASK, "moods/blue", status=1)["error"]["code"] == "value_refused"


def test_the_doctor_sees_the_authority(people: People) -> None:
    document = people.device("clerk", Role.WRITE).json("doctor", status=None)
    assert not {"no_authority", "authority_unknown", "role_read"} & {each["code"] for each in document["findings"]}
    found = {each["code"] for each in people.device("reader", Role.READ).json("doctor", status=None)["findings"]}
    assert "role_read" in found
