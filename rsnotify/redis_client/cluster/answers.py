"""What the nodes of a Cluster answer to whoever asked the wrong one, or at the wrong moment."""

from typing import Any

from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from rsnotify.errors import KeysMoving, PartAway

MOVING = "the Redis Cluster moves these keys to another node"


def meaning(answer: Any) -> Any:
    """What a node cannot do for now, as an error of one part."""
    if isinstance(answer, ClusterDownError):
        return PartAway("a part of the Redis Cluster is down")
    if isinstance(answer, MovedError | AskError | TryAgainError):
        return KeysMoving(MOVING)
    if isinstance(answer, Exception) and "non local key" in str(answer):
        return KeysMoving(MOVING)  # a script, before it has written anything
    return answer
