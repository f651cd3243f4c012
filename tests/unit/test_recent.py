"""What a process has done of late, and forgets after a minute."""

from rsnotify.recent import REMEMBERED_RECORDS, REMEMBERED_SECONDS, Recent


def test_a_record_is_remembered_for_a_minute():
    recent: Recent[str] = Recent()
    recent.note("a", "record", now=0.0)
    assert recent.has("a", REMEMBERED_SECONDS)
    assert not recent.has("a", REMEMBERED_SECONDS + 0.1)
    assert not recent.has("b", 0.0)
    assert recent.at(REMEMBERED_SECONDS) == {"a": "record"}
    assert recent.at(REMEMBERED_SECONDS + 0.1) == {}


def test_the_newest_of_too_many_are_remembered():
    recent: Recent[int] = Recent()
    for number in range(REMEMBERED_RECORDS + 1):
        recent.note(str(number), number, now=0.0)
    assert len(recent.at(0.0)) == REMEMBERED_RECORDS
    assert "0" not in recent.at(0.0)


def test_what_is_noted_again_is_as_young_as_its_last_note():
    recent: Recent[int] = Recent()
    recent.note("a", 1, now=0.0)
    recent.note("b", 1, now=1.0)
    recent.note("a", 2, now=REMEMBERED_SECONDS)
    assert recent.at(REMEMBERED_SECONDS + 1.1) == {"a": 2}


def test_what_is_forgotten_is_not_there():
    recent: Recent[int] = Recent()
    recent.note("a", 1, now=0.0)
    assert recent
    recent.forget("a")
    recent.forget("b")
    assert not recent
    assert not recent.has("a", 0.0)
