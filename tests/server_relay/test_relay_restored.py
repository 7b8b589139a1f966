"""A store that was restored and marked so: nothing is given out twice, however often one backup is put back."""

from sync_core.petitions import ClaimVerdict
from tests.server_relay.harness import Harness
from tests.server_relay.petitioners import Petitioner, admit_by_token


def test_two_restores_of_one_backup_make_no_key_and_no_token_twice() -> None:
    harness = Harness(admit_by_token)
    Petitioner(harness, "phone", "anna/admin").open()
    backup = harness.model.image()
    seen: list[tuple[str, int]] = []
    for device in ("first", "second"):
        harness.now_ms += 10 * 3_600_000
        harness.model.restore(backup)
        harness.model.mark_restored(harness.entropy.randbytes, harness.now_ms)
        harness.restart()
        admin = Petitioner(harness, device, "boss/admin")
        assert admin.lift() == ""
        answer = admin.claim(entity='"seat-1"')
        assert answer.verdict is ClaimVerdict.GRANTED
        seen.append((answer.key, answer.token))
    (key, token), (later_key, later_token) = seen
    assert later_key != key and later_token > token
