"""The command line: `segue`, a device of its own with its own store."""

__all__: list[str] = []
