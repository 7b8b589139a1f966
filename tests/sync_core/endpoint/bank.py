"""An outside system that makes payments, counts them, and can be asked about them; and tools that use it."""

import asyncio

from sync_core.document.calls import CallState
from sync_core.endpoint.safeguards import Probed
from sync_core.endpoint.tools import AsyncTool, tool
from sync_core.errors import DidNotHappen

__all__ = ["Bank", "CallState"]


class Bank:
    """`paid` holds (amount, key, token) of every payment; `fails` is what the next ones raise, after or before it.

    `started` is set when a payment begins, which then waits for `go_on`.
    """

    def __init__(self) -> None:
        self.paid: list[tuple[int, str, int]] = []
        self.fails: list[Exception] = []
        self.fails_before: list[Exception] = []
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.probes: list[str] = []
        self.knows = True

        @tool(name="pay", fenced=True)
        async def pay(amount: int, *, idempotency_key: str = "", fencing_token: int = 0) -> str:
            return await self._pay(amount, idempotency_key, fencing_token)

        @tool(name="pay")
        async def pay_unchecked(amount: int, *, idempotency_key: str = "") -> str:
            return await self._pay(amount, idempotency_key, 0)

        @tool(name="pay", keyed=True, probe=self._probe)
        async def pay_probed(amount: int, *, idempotency_key: str = "") -> str:
            return await self._pay(amount, idempotency_key, 0)

        @tool(name="pay", approval=True)
        async def pay_approved(amount: int, *, idempotency_key: str = "") -> str:
            return await self._pay(amount, idempotency_key, 0)

        @tool(key=lambda trip: trip, label=lambda result: result, keyed=True)
        async def book(trip: str, seat: str = "", *, idempotency_key: str = "") -> str:
            await self._pay(1, idempotency_key, 0)
            return f"B-{len(self.paid)}"

        @tool(releases={book: lambda booking: booking}, keyed=True)
        async def cancel(booking: str, *, idempotency_key: str = "") -> str:
            return f"cancelled {booking}"

        self.pay: AsyncTool[..., str] = pay
        self.pay_unchecked: AsyncTool[..., str] = pay_unchecked
        self.pay_probed: AsyncTool[..., str] = pay_probed
        self.pay_approved: AsyncTool[..., str] = pay_approved
        self.book: AsyncTool[..., str] = book
        self.cancel: AsyncTool[..., str] = cancel

    async def _pay(self, amount: int, key: str, token: int) -> str:
        self.started.set()
        await self.go_on.wait()
        if self.fails_before:
            raise self.fails_before.pop()
        self.paid.append((amount, key, token))
        if self.fails:
            raise self.fails.pop()
        return f"paid {amount}"

    async def _probe(self, amount: int, idempotency_key: str) -> Probed:
        self.probes.append(idempotency_key)
        if not self.knows:
            return Probed(None)
        if any(key == idempotency_key for _, key, _ in self.paid):
            return Probed(True, f"paid {amount}")
        return Probed(False)

    @property
    def amounts(self) -> list[int]:
        """What was paid."""
        return [amount for amount, _, _ in self.paid]


def nothing_happened() -> DidNotHappen:
    """What a tool raises that knows that nothing was done."""
    return DidNotHappen("The bank is closed.")
