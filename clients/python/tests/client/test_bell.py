"""The bell that wakes the sender of a publisher."""

from threading import Thread

from rsnotify_client.sender import ThreadBell


def test_a_bell_that_rang_before_is_heard_once_however_often_it_rang():
    bell = ThreadBell()
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0)


def test_a_bell_that_nobody_rang_is_silent():
    assert not ThreadBell().wait(0.001)


def test_whoever_waits_is_woken():
    bell, heard = ThreadBell(), []
    waiting = Thread(target=lambda: heard.append(bell.wait(60)))
    waiting.start()
    bell.ring()
    waiting.join(60)
    assert heard == [True]


def test_many_threads_may_ring_at_the_same_time():
    bell = ThreadBell()
    ringing = [Thread(target=lambda: [bell.ring() for _ in range(1_000)]) for _ in range(8)]
    for each in ringing:
        each.start()

    while any(each.is_alive() for each in ringing):
        bell.wait(0.01)
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0)
