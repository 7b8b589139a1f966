"""What every store must do, whoever implements it. A test class derives from `StoreSuite` and has a `store` fixture."""

from tests.contracts.store_endings import EndingTests
from tests.contracts.store_entries import EntryTests
from tests.contracts.store_streams import StreamTests
from tests.contracts.store_tasks import TaskTests

__all__ = ["StoreSuite"]


class StoreSuite(EndingTests, EntryTests, StreamTests, TaskTests):
    """All tests of the seam."""
