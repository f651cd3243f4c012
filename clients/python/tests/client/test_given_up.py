"""Waiting that is given up."""

from rsnotify_client.threads import given_up_if, is_given_up


def test_a_condition_within_another_leaves_that_one_as_it_was():
    with given_up_if(lambda: True):
        with given_up_if(lambda: False):
            assert not is_given_up()
        assert is_given_up()
    assert not is_given_up()
