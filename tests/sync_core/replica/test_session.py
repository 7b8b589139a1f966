"""The session's states are one table; what is not in it is a protocol error."""

import pytest

from sync_core.errors import ProtocolError
from sync_core.replica.changes import LinkState
from sync_core.replica.session import TRANSITIONS, Session, SessionEvent


def test_a_device_without_a_relay_starts_offline_and_one_with_a_relay_starts_connecting() -> None:
    assert Session(has_relay=False).state is LinkState.OFFLINE
    assert Session(has_relay=True).state is LinkState.CONNECTING


def test_the_usual_session_goes_live_and_comes_back_after_a_lost_link() -> None:
    session = Session(has_relay=True)
    for event, state in (
        (SessionEvent.LINK_UP, LinkState.CONNECTING),
        (SessionEvent.WELCOME, LinkState.SYNCING),
        (SessionEvent.CAUGHT_UP, LinkState.LIVE),
        (SessionEvent.LINK_DOWN, LinkState.CONNECTING),
    ):
        session.on(event)
        assert session.state is state


def test_only_a_welcomed_session_is_logged_in() -> None:
    session = Session(has_relay=True)
    session.on(SessionEvent.LINK_UP)
    assert not session.logged_in
    session.on(SessionEvent.WELCOME)
    assert session.logged_in
    session.on(SessionEvent.LINK_DOWN)
    assert not session.logged_in


def test_a_final_refusal_is_never_left() -> None:
    leaving = {event: state for (origin, event), state in TRANSITIONS.items() if origin is LinkState.REFUSED}
    assert set(leaving.values()) == {LinkState.REFUSED}


def test_every_pair_outside_the_table_is_a_protocol_error() -> None:
    for state in LinkState:
        for event in SessionEvent:
            if (state, event) in TRANSITIONS:
                continue
            session = Session(has_relay=True)
            session.state = state
            with pytest.raises(ProtocolError):
                session.on(event)
            assert session.state is state
