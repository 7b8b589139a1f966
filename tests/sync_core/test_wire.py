"""The wire: every frame comes back, messages join, and whatever is malformed is a ProtocolError."""

import random
import typing
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sync_core import frames, petitions
from sync_core.entry import Entry, EntryKind
from sync_core.errors import ProtocolError
from sync_core.frames import Hello, Login, Push, Welcome
from sync_core.ids import StreamName
from sync_core.limits import FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX
from sync_core.wire import ClientFrame, Frame, RelayFrame, decode_client, decode_relay, encode, encode_frame, join

CLIENT = typing.get_args(ClientFrame)
RELAY = typing.get_args(RelayFrame)
ENTRY = Entry("a:state", 2**53 - 1, 1, EntryKind.CALL, b"\x00\xff", "phone", 5, "0" * 64, 7, "tablet")

SAMPLES: dict[object, object] = {
    str: "é😀",
    int: 2**53,
    bytes: b"\x00\xff",
    bool: True,
    Entry: ENTRY,
    StreamName: StreamName.HISTORY,
    EntryKind: EntryKind.PLAN,
}


def sample(kind: object, empty: bool) -> object:
    """A value of a field's type; the smallest one if `empty`."""
    if kind in SAMPLES:
        return type(SAMPLES[kind])() if empty and kind in (str, int, bytes, bool) else SAMPLES[kind]
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        if arguments[-1] is Ellipsis:
            return () if empty else (sample(arguments[0], empty),) * 3
        return tuple(sample(argument, empty) for argument in arguments)
    if type(None) in arguments:
        return None if empty else sample(arguments[0], empty)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return next(iter(kind))
    assert isinstance(kind, type) and issubclass(kind, msgspec.Struct), kind
    return build(kind, empty)


def build(kind: type[msgspec.Struct], empty: bool) -> msgspec.Struct:
    hints = typing.get_type_hints(kind)
    return kind(*(sample(hints[field], empty) for field in kind.__struct_fields__))


@pytest.mark.parametrize("empty", [False, True], ids=["full", "empty"])
@pytest.mark.parametrize("kind", CLIENT, ids=lambda kind: kind.__name__)
def test_every_frame_of_an_endpoint_comes_back(kind: type[ClientFrame], empty: bool) -> None:
    frame = build(kind, empty)
    assert decode_client(encode([typing.cast(Frame, frame)])) == [frame]


@pytest.mark.parametrize("empty", [False, True], ids=["full", "empty"])
@pytest.mark.parametrize("kind", RELAY, ids=lambda kind: kind.__name__)
def test_every_frame_of_a_relay_comes_back(kind: type[RelayFrame], empty: bool) -> None:
    frame = build(kind, empty)
    assert decode_relay(encode([typing.cast(Frame, frame)])) == [frame]


def test_tags_are_distinct_and_every_frame_is_in_a_direction() -> None:
    both = set(CLIENT) | set(RELAY)
    assert len({kind.__struct_config__.tag for kind in both}) == len(both)
    made = (*vars(frames).values(), *vars(petitions).values())
    tagged = {one for one in made if isinstance(one, type) and getattr(one, "__struct_fields__", None)}
    assert both == {one for one in tagged if one.__struct_config__.tag}


def test_a_frame_of_the_other_direction_is_refused() -> None:
    for kind in set(CLIENT) - set(RELAY):
        with pytest.raises(ProtocolError):
            decode_relay(encode([typing.cast(Frame, build(kind, False))]))
    for kind in set(RELAY) - set(CLIENT):
        with pytest.raises(ProtocolError):
            decode_client(encode([typing.cast(Frame, build(kind, False))]))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 255, 65_535, 65_536, 65_537])
def test_joined_frames_are_the_message_of_all_of_them(count: int) -> None:
    frame = frames.Unfollow("")
    message = join([encode_frame(frame)] * count)
    assert message == msgspec.msgpack.encode([frame] * count)
    if len(message) <= FRAME_BYTES_MAX:
        assert decode_client(message) == [frame] * count


def test_frames_keep_their_order() -> None:
    sent: list[Frame] = [Login(1, "acme", "phone", "t"), Hello("a"), Push("a", (ENTRY,)), Hello("b")]
    assert decode_client(encode(sent)) == sent


def test_an_entry_of_the_largest_payload_fits_one_message() -> None:
    entry = msgspec.structs.replace(ENTRY, payload=bytes(PAYLOAD_BYTES_MAX))
    assert len(encode([Push("x" * 200, (entry,))])) <= FRAME_BYTES_MAX


def test_text_and_oversize_messages_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(ProtocolError, match="text"):
        decode_client("hello")
    with pytest.raises(ProtocolError, match=str(FRAME_BYTES_MAX)):
        decode_client(bytes(FRAME_BYTES_MAX + 1))


@given(st.binary(max_size=300))
def test_garbage_is_a_protocol_error_and_nothing_else(message: bytes) -> None:
    for decode in (decode_client, decode_relay):
        try:
            came = decode(b"\x91" + message)
        except ProtocolError:
            continue
        assert len(came) == 1


MALFORMED = {
    "nothing": b"",
    "no list": b"\x01",
    "a list of claims": b"\xdd\xff\xff\xff\xff",
    "bytes of claims": b"\x91\x93\xa4want\xdb\xff\xff\xff\xff",
    "deep": b"\x91" * 200_000,
    "an unknown tag": msgspec.msgpack.encode([["shutdown", 1]]),
    "no tag": msgspec.msgpack.encode([[]]),
    "a field too few": msgspec.msgpack.encode([["login", 1, "acme"]]),
    "a field of another type": msgspec.msgpack.encode([["login", "1", "acme", "phone"]]),
    "a number beyond 64 bits": b"\x91\x94\xa5login\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00\xa1a\xa1b",
    "text that is not UTF-8": b"\x91\x92\xa8unfollow\xa2\xff\xfe",
    "something behind": encode([Hello("a")]) + b"\x00",
    "an unknown stream": msgspec.msgpack.encode([["hello", "a", [["other", b"", 0, b""]]]]),
}


@pytest.mark.parametrize("name", MALFORMED, ids=str)
def test_a_malformed_message_is_a_protocol_error_that_does_not_repeat_it(name: str) -> None:
    for decode in (decode_client, decode_relay):
        with pytest.raises(ProtocolError) as refused:
            decode(MALFORMED[name])
        assert str(refused.value) == "A message is malformed."
        assert refused.value.__cause__ is None


def test_a_message_that_is_cut_or_flipped_never_raises_anything_else() -> None:
    rng = random.Random(24)
    whole = encode([Push("a", (ENTRY, ENTRY)), Hello("b", (frames.StreamPosition(StreamName.STATE, b"e", 5, b"c"),))])
    for _ in range(3_000):
        data = bytearray(whole[: rng.randrange(len(whole) + 1)])
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            decode_client(bytes(data))
        except ProtocolError:
            continue


def test_a_newer_peers_further_fields_are_ignored() -> None:
    message = msgspec.msgpack.encode([["welcome", 1, 5, "write", "anna", True, 9, "a field of later"]])
    assert decode_relay(message) == [Welcome(1, 5, "write", "anna", True, 9)]
