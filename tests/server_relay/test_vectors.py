"""The test vectors are what the code does, and can be read without it: a MessagePack decoder and SHA-256 are enough."""

import hashlib
import json

import msgspec
import pytest

from server_relay.admission import LoginRefused
from server_relay.tokens import TokenGate
from sync_core.frames import Login
from sync_core.wire import ClientFrame, RelayFrame, decode_client, decode_relay, encode
from tests.server_relay.make_vectors import FILE, text_of, vectors

VECTORS = json.loads(FILE.read_text())


def raw(value: object) -> object:
    """Bytes again where the file says hex."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"]) if value.keys() == {"hex"} else {k: raw(v) for k, v in value.items()}
    return [raw(member) for member in value] if isinstance(value, list) else value


def test_the_file_is_up_to_date() -> None:
    assert FILE.read_text() == text_of(vectors()), "run: python -m tests.server_relay.make_vectors"


def test_every_frame_of_the_wire_has_a_vector() -> None:
    for side, union in (("to_relay", ClientFrame), ("to_endpoint", RelayFrame)):
        assert {vector["frame"] for vector in VECTORS[side]} == {kind.__name__ for kind in union.__args__}


@pytest.mark.parametrize("side", ["to_relay", "to_endpoint"])
def test_a_message_is_an_array_of_frames_each_an_array_that_begins_with_its_tag(side: str) -> None:
    decode = decode_client if side == "to_relay" else decode_relay
    for vector in VECTORS[side]:
        message = raw(vector["message"])
        assert isinstance(message, bytes)
        assert msgspec.msgpack.decode(message) == [raw(vector["value"])]
        (frame,) = decode(message)
        assert type(frame).__name__ == vector["frame"]
        assert encode([frame]) == message
        # Fields with a default may be left out at the end, as a sender of an earlier version does.
        assert isinstance(vector["value"][0], str)


def test_records_are_maps_of_named_fields_with_a_type() -> None:
    for vector in VECTORS["records"]:
        value = msgspec.msgpack.decode(raw(vector["payload"]))  # type: ignore[arg-type]
        assert value == raw(vector["value"])
        assert isinstance(value["type"], str)


def test_the_chain_follows_from_the_entries() -> None:
    chain = bytes(16)
    for vector in VECTORS["log"]:
        entry = raw(vector["entry"])
        assert isinstance(entry, list)
        content_hash = hashlib.sha256(msgspec.msgpack.encode(entry[:8])).digest()
        chain = hashlib.sha256(chain + content_hash).digest()[:16]
        assert (content_hash, chain) == (raw(vector["hash"]), raw(vector["chain"]))


def test_keys_are_the_hash_of_a_canonical_list() -> None:
    for vector in VECTORS["keys"]:
        text = json.dumps(vector["of_what"], separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == vector["key"]


def test_canonical_json_is_sorted_and_ascii() -> None:
    for vector in VECTORS["canonical"]:
        assert vector["canonical"].isascii()
        assert json.loads(vector["canonical"]) == vector["json"]


def test_tokens_are_admitted_as_the_vectors_say() -> None:
    tokens = VECTORS["tokens"]
    gate = TokenGate((tokens["secret"],))
    for vector in tokens["tokens"]:
        try:
            gate(Login(VECTORS["wire_version"], *tokens["login"], vector["token"]), tokens["at_ms"])
        except LoginRefused:
            assert not vector["admitted"], vector["what"]
        else:
            assert vector["admitted"], vector["what"]
