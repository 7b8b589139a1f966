"""Read tokens: a set of write ids as text and back, and nothing else passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.config import WrongUsage
from clients.desktop.read_token import decode_token, encode_token

WRITE_IDS = st.frozensets(st.binary(min_size=8, max_size=8).map(bytes.hex), max_size=6)


@given(WRITE_IDS)
def test_a_token_comes_back_as_the_same_set(write_ids: frozenset[str]) -> None:
    assert decode_token(encode_token(write_ids)) == write_ids
    assert encode_token(write_ids).isalnum()


def test_a_token_of_one_write_is_short() -> None:
    assert len(encode_token(frozenset({"00112233445566ff"}))) == 15


@given(st.text(max_size=40))
def test_any_other_text_is_refused_or_is_a_token(text: str) -> None:
    try:
        found = decode_token(text)
    except WrongUsage:
        return
    assert encode_token(found) == text.lower()


def test_a_token_that_was_cut_short_is_refused() -> None:
    token = encode_token(frozenset({"00112233445566ff", "ff66554433221100"}))
    for length in range(1, len(token)):
        with pytest.raises(WrongUsage):
            decode_token(token[:length])
