"""A transaction: all of it is in the file, or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from sync_core.context.rows import SqlConnection

__all__ = ["transaction"]


@contextmanager
def transaction(connection: SqlConnection) -> Iterator[None]:
    """Commit what is executed inside, or nothing of it if that, or the commit, raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
