"""JSON for people and models: plain numbers and letters, where canonical JSON has exponents and escapes."""

import msgspec

from sync_core.values import JsonValue, parse

__all__ = ["plain", "readable"]

_encoder = msgspec.json.Encoder(decimal_format="number", order="sorted")


def readable(text: str) -> str:
    """Return a canonical text as readable JSON; equal texts give equal results on every device."""
    return _encoder.encode(parse(text)).decode()


def plain(text: str) -> JsonValue:
    """Return the value of a canonical text with plain numbers only, so that any JSON library can write it."""
    value: JsonValue = msgspec.json.decode(readable(text))
    return value
