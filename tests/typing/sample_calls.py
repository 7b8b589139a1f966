"""Checked by `mypy --strict`, never run: a program sees a tool's own parameters and result through `task.call`."""

from dataclasses import dataclass
from typing import assert_type

from sync_core import Effect, Endpoint, JsonValue, Slot, Task, tool


@dataclass
class Invoice:
    total: int


@tool(effect=Effect.READ, requires={"files"})
async def read_invoice(path: str, *, pages: int = 1) -> Invoice:
    return Invoice(len(path) + pages)


@tool(effect=Effect.IDEMPOTENT)
def check(invoice: Invoice, limit: float) -> bool:
    return invoice.total < limit


@tool
async def pay(amount: int) -> None: ...


async def program() -> None:
    async with Endpoint.open("acme.db", subject="acme", device="phone", tools=[read_invoice, check, pay]) as phone:
        assert_type(phone, Endpoint)
        task = await phone.task("expense/TRIP-118", create=True)
        assert_type(task, Task)
        async with phone.task("expense/TRIP-118") as again:
            assert_type(again, Task)
        invoice = await task.call("invoice", read_invoice, "a.pdf", pages=2)
        assert_type(invoice, Invoice)
        assert_type(await task.call("check", check, invoice, limit=3.0), bool)
        assert_type(await read_invoice("a.pdf"), Invoice)
        assert_type(check(invoice, 1.0), bool)
        assert_type(task.slots["x"], Slot)
        assert_type(await task.calls["invoice"].result(), JsonValue)
        await task.call("pay", pay, 5)
        await task.call("invoice", read_invoice, 7)  # type: ignore[arg-type]
        await task.call("invoice", read_invoice)  # type: ignore[call-arg]
        await task.call("invoice", read_invoice, "a.pdf", page=2)  # type: ignore[call-arg]
        await task.call("check", check, invoice, "much")  # type: ignore[arg-type]
