"""The queue in memory."""

import threading

import pytest

from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.queue import BATCH_BYTES, BATCH_CHANGES, MARGIN, MemoryQueue, QueueFull

A, B = ChannelName("a", "change"), ChannelName("b", "change")


def queue_of(*changes: tuple[ChannelName, bytes], size: int = 10) -> MemoryQueue:
    queue = MemoryQueue(size, "raise")
    for channel, change in changes:
        queue.put(channel, change)
    return queue


def test_a_batch_stays_the_same_until_it_is_removed():
    queue = queue_of((A, b"1"))
    first = queue.take((), BATCH_CHANGES)
    queue.put(A, b"2")
    assert queue.take((), BATCH_CHANGES) == first


def test_what_is_left_of_a_batch_goes_first_under_another_key():
    queue = queue_of((A, b"1"), (A, b"2"), (A, b"3"))
    first = queue.take((), 2)
    queue.remove(first, {first.ids[1]})
    second = queue.take((), BATCH_CHANGES)
    assert second.changes == (b"1", b"3")
    assert second.key != first.key


def test_what_two_senders_send_is_removed_once():
    queue = queue_of((A, b"1"), (A, b"2"))
    batch = queue.take((), 1)
    assert [queue.remove(batch, batch.ids) for _ in "12"] == [1, 0]
    assert queue.take((), 1).changes == (b"2",)


def test_a_postponed_set_does_not_hold_up_another():
    queue = queue_of((A, b"1"), (B, b"2"))
    assert queue.take([A], BATCH_CHANGES).channel == B
    assert queue.take([A, B], BATCH_CHANGES) is None


def test_a_batch_has_at_most_its_count_and_its_bytes():
    half = b"x" * (BATCH_BYTES // 2 - 2)
    two = queue_of((A, half), (A, half + b"x"), (A, b"")).take((), 10)
    assert len(two.ids) == 2
    assert len(two.body) == BATCH_BYTES
    assert len(queue_of((A, half), (A, half + b"xx")).take((), 10).ids) == 1
    assert len(queue_of((A, half * 3)).take((), 10).ids) == 1
    assert len(queue_of((A, b"1"), (A, b"2"), (A, b"3")).take((), 2).ids) == 2


def test_one_change_more_than_the_queue_holds_is_refused():
    queue = queue_of((A, b"1"), (A, b"2"), size=2)
    with pytest.raises(QueueFull, match="2 changes wait for the hub"):
        queue.put(A, b"3")


def test_threads_that_put_at_once_put_no_more_than_the_queue_holds():
    queue, refused = MemoryQueue(MARGIN + 20, "raise"), []

    def put_many() -> None:
        for _ in range(100):
            try:
                queue.put(A, b"1")
            except QueueFull as error:
                refused.append(error)

    threads = [threading.Thread(target=put_many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (queue.waiting(), queue.taken, len(refused)) == (MARGIN + 20, MARGIN + 20, 524)
    assert queue.ends() == (1, MARGIN + 20)


def test_a_full_queue_makes_a_caller_wait_until_there_is_room():
    queue = MemoryQueue(1, "wait")
    queue.put(A, b"1")
    waiting = threading.Thread(target=queue.put, args=(A, b"2"))
    waiting.start()
    batch = queue.take((), 1)
    assert batch.changes == (b"1",)
    queue.remove(batch, batch.ids)
    waiting.join(60)
    assert queue.take((), 1).changes == (b"2",)


def test_who_may_not_wait_is_refused_instead():
    queue = MemoryQueue(1, "wait")
    queue.put(A, b"1")
    with pytest.raises(QueueFull):
        queue.put(A, b"2", lambda: True)


def test_who_may_wait_no_longer_is_refused_though_there_is_room():
    queue, answers = MemoryQueue(1, "wait"), iter((False, True))
    queue.put(A, b"1")

    def cannot_wait() -> bool:
        if (batch := queue.take((), 1)) is not None:
            queue.remove(batch, batch.ids)
        return next(answers)

    with pytest.raises(QueueFull):
        queue.put(A, b"2", cannot_wait)
