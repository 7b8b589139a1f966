"""Every bound of Segue, with its unit in its name.

A bound is part of the promise: what exceeds one is refused with a typed error, never truncated in silence.
"""

__all__ = [
    "ARGUMENT_INLINE_BYTES_MAX",
    "BASE_PINS_PER_NOTE_MAX",
    "BASE_PIN_KEEP_MS",
    "BLOB_BYTES_MAX",
    "BLOB_PIECE_BYTES",
    "DEFINITION_WRITE_BYTES_MAX",
    "DIFF_EDITS_MAX",
    "DOCUMENT_BYTES_MAX",
    "DOCUMENT_BYTES_WARNING",
    "FRAME_BYTES_MAX",
    "GROWTH_WARNING_DAYS",
    "HELLO_OWN_WRITERS_MAX",
    "HISTORY_INLINE_BYTES_MAX",
    "LATENCY_MAX_MS",
    "LISTING_PAGE_TASKS",
    "LOGIN_MESSAGE_BYTES_MAX",
    "NAME_CHARS_MAX",
    "NOTE_BYTES_MAX",
    "OUT_QUEUE_BYTES_MAX",
    "PAYLOAD_BYTES_MAX",
    "RECORD_NUMBER_MAX",
    "RESULT_INLINE_BYTES_MAX",
    "SCAN_CLOCK_MAX",
    "SCAN_IDS_MAX",
    "SCAN_STRUCTS_MAX",
    "SCHEMA_BYTES_MAX",
    "SLOT_VALUE_BYTES_MAX",
    "SLOT_VALUE_DEPTH_MAX",
    "SLOT_WRITE_BYTES_MAX",
    "SNAPSHOT_BYTES_MAX",
    "SNAPSHOT_IDS_MAX",
    "SNAPSHOT_STRUCTS_MAX",
    "STEP_CHARS_MAX",
    "STORE_WARNING_PERCENT",
    "SYNC_LATENCY_WARNING_MS",
    "TASK_CHARS_MAX",
    "TASK_WRITES_MAX",
    "TASK_WRITES_WARNING",
    "TOMBSTONES_MAX",
    "TOMBSTONE_KEEP_MS",
    "TTL_WARNING_PERCENT",
    "WRITE_LATENCY_WARNING_MS",
]

# The wire and the relay.
FRAME_BYTES_MAX = 256 * 1024
LOGIN_MESSAGE_BYTES_MAX = 24 * 1024
"""Largest message of a connection that was not welcomed yet: the largest token, and some frames joined to the login."""
OUT_QUEUE_BYTES_MAX = 512 * 1024
PAYLOAD_BYTES_MAX = 192 * 1024
"""Largest payload of one entry, bytes; a whole entry then still fits one frame."""
HELLO_OWN_WRITERS_MAX = 512
LISTING_PAGE_TASKS = 200

# Blobs.
BLOB_BYTES_MAX = 16 * 1024 * 1024
BLOB_PIECE_BYTES = 128 * 1024
RESULT_INLINE_BYTES_MAX = 4 * 1024
HISTORY_INLINE_BYTES_MAX = 64 * 1024
ARGUMENT_INLINE_BYTES_MAX = 32 * 1024

# What a task holds.
NAME_CHARS_MAX = 64
TASK_CHARS_MAX = 200
STEP_CHARS_MAX = 200
SLOT_VALUE_BYTES_MAX = 4 * 1024
"""Largest value of a slot as canonical JSON, which is ASCII: a letter beyond it counts as 6 bytes."""
SLOT_VALUE_DEPTH_MAX = 32
"""Levels of lists and objects in a slot's value: half of what JSON may have, so that whoever wraps it always can."""
SLOT_WRITE_BYTES_MAX = 8 * 1024
"""Largest JSON text under one key of `slots`: the value and what is kept beside it, bytes."""
SCHEMA_BYTES_MAX = 8 * 1024
DEFINITION_WRITE_BYTES_MAX = 16 * 1024
"""Largest JSON text under one key of `slotdefs`, bytes."""
NOTE_BYTES_MAX = 128 * 1024
DOCUMENT_BYTES_WARNING = 12 * 1024 * 1024
DOCUMENT_BYTES_MAX = 16 * 1024 * 1024
TASK_WRITES_WARNING = 20_000
TASK_WRITES_MAX = 100_000

# What `endpoint.stats()` warns of before something is refused, or a wait is given up.
GROWTH_WARNING_DAYS = 30
"""A task that would reach its document's bound within so many days, as it has grown up to now."""
STORE_WARNING_PERCENT = 80
TTL_WARNING_PERCENT = 75
WRITE_LATENCY_WARNING_MS = 250
SYNC_LATENCY_WARNING_MS = 1_000
LATENCY_MAX_MS = 5_000
"""So long opening a task waits by default: a slower relay is to it as none."""

# Tombstones on a device; a relay's own are kept as long as its settings say.
TOMBSTONES_MAX = 1_000
TOMBSTONE_KEEP_MS = 90 * 24 * 3600 * 1000

# Notes: three-way merge; one command merges, so no round is ever lost to another write.
DIFF_EDITS_MAX = 500
BASE_PINS_PER_NOTE_MAX = 100
BASE_PIN_KEEP_MS = 7 * 24 * 3600 * 1000

# The guard (rule C; its grammar has nothing that nests) and, apart, what a snapshot may hold (rule F).
SCAN_STRUCTS_MAX = 4_096
SCAN_IDS_MAX = 1_024
SCAN_CLOCK_MAX = 2**31
RECORD_NUMBER_MAX = 2**53
"""Highest version, Lamport number, index or time in a record; a writer never goes beyond it."""
SNAPSHOT_BYTES_MAX = 16 * 1024 * 1024
SNAPSHOT_STRUCTS_MAX = 262_144
SNAPSHOT_IDS_MAX = 16_384
