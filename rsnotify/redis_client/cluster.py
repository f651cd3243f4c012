"""Redis Cluster: each key has a slot, each slot a node, and a node may hand its slots over.

All nodes are asked at once, and the newest configuration among their answers is believed. What a
node says of a slot that it does not have any more is believed too. A node that does not answer is
left alone until it answers a question that is asked aside: meanwhile whatever is sent to it fails
at once, so that nobody who needs another node waits for it.

The keys of a set have its name as their tag, and those of a share of subscriptions its number. All
others get the tag `{hub}`, which no set can have: so sets and tokens are in one slot. One server
alone keeps the names that it always had.

The client sends each command to the node that has its keys. A node that has handed a slot over says
so, and did nothing: the command goes to the node that it names. While a slot is moved, a command
for one key is done where that key is; one for several keys may be refused until all have arrived
(`TryAgain`), and so is whatever is sent `once`.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import sample
from time import monotonic
from typing import Any, NamedTuple, Self

from redis import asyncio as redis
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ResponseError,
    TryAgainError,
)

from rsnotify.errors import KeysMoving, PartAway, RedisRefuses, TryAgain, Unanswered
from rsnotify.redis_client.address import Address, Host
from rsnotify.redis_client.client import (
    WAITED,
    MoreCommands,
    Pipeline,
    RedisClient,
    Replicas,
    Script,
    answer_raw,
    as_transaction,
    executed,
    is_connection_lost,
    judge_answers,
    parsed_as,
    pool_options,
    repeatable,
    words_of,
)
from rsnotify.redis_client.failures import nobody_knows
from rsnotify.redis_client.pool import Command, Confirm, Pool, round_trip
from rsnotify.single_flight import SingleFlight

# --- nodes ---------------------------------------------------------------------------------------

SLOTS = 16_384
TAG = "rsnotify:{hub}:"
HUB_KEY = TAG + "sets"  # stands for all keys of this tag

_WITHOUT = {"PING", "HELLO", "TIME", "INFO", "CONFIG", "PUBLISH", "PUBSUB", "CLUSTER"}
_ALL = {"MGET", "DEL", "UNLINK", "EXISTS"}
_SCRIPTS = {"EVAL", "EVALSHA"}

ASK_SECONDS = 0.5  # for a node to be connected with, and again to say which slots there are
AGAIN_SECONDS = 0.25  # between questions to one that does not answer
REDIRECTIONS = 5  # one after the other, before it is given up for now


class Routed(NamedTuple):
    """A command, and the slot of its keys."""

    command: Command
    slot: int
    key: str


def slot_of(key: str) -> int:
    return key_slot(key.encode())


def tagged(key: str) -> str:
    """The key as it is called in a Cluster."""
    return key if "{" in key else key.replace("rsnotify:", TAG, 1)


def waited_in(key: str) -> str:
    """A key in the same slot, written so that its replicas can be waited for."""
    begin = key.find("{")
    tag = key[begin : key.find("}", begin) + 1]
    return f"rsnotify:{tag}:{WAITED.rpartition(':')[2]}"


def routed_to(command: Command) -> Routed:
    """The command as a Cluster wants it, and where it goes; to `{hub}` if it has no key.

    All its keys must be in one slot, or it is a mistake in the hub.
    """
    words = words_of(command)
    at = _keys_at(words)
    names = [tagged(_text(words[place])) for place in at] or [HUB_KEY]
    slots = {slot_of(name) for name in names}
    if len(slots) != 1:
        raise ValueError(f"keys of several slots in one {words[0]}: {', '.join(names[:5])}")
    if at:
        words = (*words[: at.start], *names, *words[at.stop :])
    return Routed(words, slots.pop(), names[0])


def _keys_at(words: Sequence[object]) -> range:
    name = words[0]
    if name in _WITHOUT:
        return range(0)
    if name in _SCRIPTS:
        return range(3, 3 + int(str(words[2])))
    return range(1, len(words) if name in _ALL else 2)


def _text(key: object) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)


QUESTIONS: tuple[Command, ...] = (("CLUSTER", "SLOTS"), ("CLUSTER", "INFO"))

log = logging.getLogger(__name__)


class Node:
    """One node, and the connections to it."""

    def __init__(self, host: Host, options: dict[str, Any]) -> None:
        self.host = host
        options = pool_options() | options | {"host": host[0], "port": host[1]}
        self.client: Any = RedisClient.from_pool(Pool(**options))
        answer_raw(self.client)
        quick = {"socket_connect_timeout": ASK_SECONDS, "socket_timeout": ASK_SECONDS}
        alone = {"max_connections": 1, "retry": Retry(NoBackoff(), 0)}
        self.asked = Pool(**options | quick | alone)
        self.server = ""  # its name when it was asked last
        self.away_since: float | None = None

    def __str__(self) -> str:
        return f"{self.host[0]}:{self.host[1]}"

    async def once(self, commands: Sequence[Command], confirm: Confirm | None) -> list[Any]:
        """Send these once; not to a node that is known not to answer."""
        self._require_answering()
        return await round_trip(self.client.connection_pool, commands, confirm=confirm)

    async def repeatable(self, commands: Sequence[Command]) -> list[Any]:
        """Send these, and again if the connection died while it was idle."""
        self._require_answering()
        return await repeatable(self.client.connection_pool, commands)

    def _require_answering(self) -> None:
        if self.away_since is not None:
            raise PartAway(f"the node {self} of the Redis Cluster does not answer")

    async def aclose(self) -> None:
        await self.client.aclose()
        await self.asked.aclose()


class _View(NamedTuple):
    """What one node says; of two, the one with the higher epoch is newer."""

    epoch: int
    is_ok: bool
    ranges: list[tuple[int, int, Host]]


class Nodes:
    """The nodes that are known; none is asked before the first command."""

    def __init__(self, address: Address) -> None:
        self._seeds = address.nodes
        self._options = address.options
        self._nodes: dict[Host, Node] = {}
        self._of_slot: list[Node | None] = [None] * SLOTS
        self.masters: list[Node] = []  # those that have slots
        self._is_known = False
        self._asking: SingleFlight[str, None] = SingleFlight("question to the nodes of the Cluster")
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def known(self, slot: int) -> Node | None:
        return self._of_slot[slot]

    def servers(self) -> tuple[str, ...]:
        """The name of each slot's server, as it was when it was asked last."""
        return tuple("" if node is None else node.server for node in self._of_slot)

    async def require_known(self) -> None:
        """Ask which slots there are, the first time."""
        if not self._is_known:
            await self.refresh()

    def of_slot(self, slot: int) -> Node:
        node = self._of_slot[slot]
        if node is None:
            self._begin("refresh", self.refresh)
            raise PartAway(f"no node of the Redis Cluster has the slot {slot}")
        return node

    def at(self, host: Host, named_by: Node | None = None) -> Node:
        """The node there; without a name it is on the host of the node that named it."""
        where = (host[0] or (named_by.host[0] if named_by else ""), host[1])
        if where not in self._nodes:
            self._nodes[where] = Node(where, self._options)
        return self._nodes[where]

    def move(self, moved: MovedError, named_by: Node) -> None:
        """Another node has the slot; the node that says so may know of more."""
        node = self._of_slot[moved.slot_id] = self.at((moved.host, moved.port), named_by)
        if node not in self.masters:
            self.masters.append(node)
        self._begin("refresh", self.refresh)

    # --- trouble ---------------------------------------------------------------------------------

    def note_trouble(self, node: Node, error: TryAgain) -> PartAway | RedisRefuses:
        """Leave the node alone until it answers again, and ask whether another has its slots."""
        if isinstance(error, RedisRefuses):
            return error
        if isinstance(error, PartAway):
            self._begin("until all are back", self._ask_until_all_are_back)
            return error
        if is_connection_lost(error):
            self._begin("refresh", self.refresh)  # perhaps it was this connection only
        else:
            if node.away_since is None:
                log.warning("the node %s of the Redis Cluster is not used: %s", node, error.detail)
                node.away_since = monotonic()
            self._begin("until all are back", self._ask_until_all_are_back)
        return PartAway(f"the node {node} of the Redis Cluster does not answer: {error.detail}")

    async def _ask_until_all_are_back(self) -> None:
        while any(node.away_since is not None for node in self.masters):
            with suppress(TryAgain):
                await self.refresh()
            await asyncio.sleep(AGAIN_SECONDS)

    def _begin(self, name: str, act: Any) -> None:
        """Begin a task, unless it runs already."""
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.create_task(_quietly(act), name=f"Redis Cluster: {name}")

    # --- questions -------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Ask all nodes which slots they have; once for all who want to know at the same time."""
        await self._asking.result("", self._ask_all)

    async def _ask_all(self) -> None:
        views = await self._views([node.host for node in self.masters])
        if not any(isinstance(view, _View) for view in views):
            views = await self._views(self._seeds)
        known = [view for view in views if isinstance(view, _View)]
        if not known:
            errors = [each for each in views if isinstance(each, Exception)]
            if any("cluster support disabled" in str(error) for error in errors):
                raise RedisRefuses(
                    "it is no Redis Cluster: write redis:// and not redis+cluster://"
                )
            raise nobody_knows("node of the Redis Cluster", errors)
        before = self.masters
        self._learn(max(known, key=lambda view: (view.epoch, view.is_ok)))
        for node in set(before) - set(self.masters):
            _note_end(node, "has no slots any more")

    async def _views(self, hosts: Sequence[Host]) -> list[_View | BaseException]:
        asked = (self._ask(self.at(host)) for host in hosts)
        return await asyncio.gather(*asked, return_exceptions=True)

    async def _ask(self, node: Node) -> _View:
        slots, info = await round_trip(node.asked, QUESTIONS)
        for answer in (slots, info):
            if isinstance(answer, ResponseError):
                raise answer
        _note_end(node, "answers again")
        said = dict(line.split(":", 1) for line in info.decode().split("\r\n") if ":" in line)
        ranges = [
            (begin, end, ((host or b"").decode() or node.host[0], port))
            for begin, end, (host, port, *_), *_ in slots
        ]
        return _View(int(said["cluster_current_epoch"]), said["cluster_state"] == "ok", ranges)

    def _learn(self, view: _View) -> None:
        self._of_slot = [None] * SLOTS
        for begin, end, host in view.ranges:
            self._of_slot[begin : end + 1] = [self.at(host)] * (end + 1 - begin)
        self.masters = list(dict.fromkeys(self.at(host) for _, _, host in view.ranges))
        self._is_known = True

    async def aclose(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._asking.aclose()  # it would connect again with what is closed
        await asyncio.gather(*(node.aclose() for node in self._nodes.values()))


def _note_end(node: Node, how: str) -> None:
    """Log the trouble of a task, if it had any."""
    if node.away_since is not None:
        away = monotonic() - node.away_since
        log.warning("the node %s of the Redis Cluster %s after %.0f s", node, how, away)
        node.away_since = None


async def _quietly(act: Any) -> None:
    with suppress(TryAgain):
        await act()


class ToAnyNode(Connection):
    """A connection to any node: each time to another one, until one answers."""

    def __init__(self, *, nodes: tuple[Host, ...], **options: Any) -> None:
        super().__init__(**options)
        self._nodes = nodes

    async def _connect(self) -> None:
        trouble: Exception | None = None
        for host, port in sample(self._nodes, len(self._nodes)):
            self.host, self.port = host, port
            try:
                return await super()._connect()  # type: ignore[no-untyped-call, no-any-return]
            except (TimeoutError, OSError) as error:
                trouble = error
        assert trouble is not None  # noqa: S101 - an address names one node at least
        raise trouble


class ToAnyNodeWithTLS(ToAnyNode, SSLConnection):
    """The same with TLS."""


# --- the client ----------------------------------------------------------------------------------

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


class ClusterClient(MoreCommands, redis.Redis):  # type: ignore[misc] # the library's own bases
    """The `RedisClient` of a Cluster, for all nodes together."""

    is_cluster = True
    nodes: Nodes
    replicas: Replicas

    @classmethod
    def at(cls, address: Address, replicas: Replicas) -> Self:
        client: Any = cls.from_pool(redis.ConnectionPool(protocol=2))  # each node has its own
        client.nodes, client.replicas = Nodes(address), replicas
        answer_raw(client)
        found: Self = client
        return found

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await self.nodes.aclose()
        await super().aclose(close_connection_pool)

    def lane(self, tag: str) -> str:
        """What is in the same lane waits for the same server."""
        return str(self.nodes.known(slot_of(tag)))

    async def servers(self) -> tuple[str, ...]:
        """The server of each slot; one that does not answer keeps the name that it had."""
        await self.nodes.refresh()
        await asyncio.gather(*map(self._ask_name, self.nodes.masters))
        return self.nodes.servers()

    async def _ask_name(self, node: Node) -> None:
        try:
            (node.server,) = await node.client.servers()
        except TryAgain as error:
            self.nodes.note_trouble(node, error)

    async def masters(self) -> dict[str, RedisClient]:
        """A client of each server that is written to, as far as is known, by its lane."""
        await self.nodes.require_known()
        return {str(node): node.client for node in self.nodes.masters}

    # --- what may be repeated --------------------------------------------------------------------

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        answer = await self.route(routed_to(command))
        (found,) = judge_answers([answer], raise_on_error=True)
        return parsed_as(self.response_callbacks, command, found, options)

    def pipeline(self, transaction: bool = True, _: str | None = None) -> Pipeline:
        return Pipeline(self, transaction)

    async def route(self, routed: Routed) -> Any:
        """The answer to one command, wherever its key is; an error is one too."""
        command, asking, answer = routed.command, None, None
        for _ in range(REDIRECTIONS):
            try:
                await self.nodes.require_known()
                node = asking or self.nodes.of_slot(routed.slot)
                before: tuple[Command, ...] = (("ASKING",),) if asking else ()
                *_, answer = await self._repeatable(node, [*before, command])
            except TryAgain as error:
                return error
            asking = None
            if isinstance(answer, MovedError):
                self.nodes.move(answer, node)
            elif isinstance(answer, AskError):
                asking = self.nodes.at((answer.host, answer.port), node)
            elif isinstance(answer, NoScriptError):
                command = Script.in_full(command)
            else:
                break
        return meaning(answer)

    async def _repeatable(self, node: Node, commands: Sequence[Command]) -> list[Any]:
        try:
            return await node.repeatable(commands)
        except TryAgain as error:
            raise self.nodes.note_trouble(node, error) from error

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to many: each node is asked once, all at the same time."""
        routed = [routed_to(command) for command in commands]
        answers: list[Any] = [None] * len(routed)
        groups = await self._by_node(routed, range(len(routed)), answers)
        asked = (self._ask_node(node, routed, at, answers) for node, at in groups)
        await asyncio.gather(*asked)
        return answers

    async def _by_node(
        self, routed: Sequence[Routed], places: Iterable[int], answers: list[Any]
    ) -> list[tuple[Node, list[int]]]:
        """The places of those that each node has; what no node has is answered."""
        groups: dict[Node, list[int]] = {}
        await self.nodes.require_known()
        for at in places:
            try:
                groups.setdefault(self.nodes.of_slot(routed[at].slot), []).append(at)
            except TryAgain as error:
                answers[at] = error
        return list(groups.items())

    async def _ask_node(
        self, node: Node, routed: Sequence[Routed], places: list[int], answers: list[Any]
    ) -> None:
        """Those of one slot are done in their order, even if it is moved meanwhile."""
        try:
            found = await self._repeatable(node, [routed[at].command for at in places])
        except TryAgain as error:
            found = [error] * len(places)
        moved: set[int] = set()
        for at, answer in zip(places, found, strict=True):
            slot = routed[at].slot
            if slot in moved or isinstance(answer, MovedError | AskError | NoScriptError):
                if not isinstance(answer, NoScriptError):
                    moved.add(slot)
                answers[at] = await self.route(routed[at])
            else:
                answers[at] = meaning(answer)

    async def atomically(self, commands: Sequence[Command]) -> list[Any]:
        """All of these or none; they are of one slot."""
        routed = [routed_to(command) for command in commands]
        if len({each.slot for each in routed}) != 1:
            raise ValueError("a transaction has keys of several slots")
        wrapped = as_transaction([each.command for each in routed])
        for _ in range(REDIRECTIONS):
            await self.nodes.require_known()
            node = self.nodes.of_slot(routed[0].slot)
            answers = await self._repeatable(node, wrapped)
            if not isinstance(answers[-1], Exception):
                return list(answers[-1])
            moved = next((each for each in answers if isinstance(each, MovedError)), None)
            if moved is None:
                break
            self.nodes.move(moved, node)
        return executed([meaning(each) for each in answers])

    # --- what may not ----------------------------------------------------------------------------

    async def once(self, commands: Sequence[Command], *then: Command) -> list[Any]:
        """Execute these in one round trip that is not repeated; an error is an answer.

        `Unanswered` means that they may have been executed, any other `TryAgain` that none was;
        where only some nodes do not answer, that is the answer to what they have.
        What is to be read `then` is always read behind them.
        """
        routed = [routed_to(command) for command in commands]
        answers: list[Any] = [None] * len(routed)
        left = list(range(len(routed)))
        for _ in range(REDIRECTIONS):
            groups = await self._by_node(routed, left, answers)
            asked = (self._once(node, routed, places, answers) for node, places in groups)
            left = sorted(at for places in await asyncio.gather(*asked) for at in places)
            if not left:
                break
        found = judge_answers([meaning(each) for each in answers], raise_on_error=False)
        for answer in found:
            if isinstance(answer, Unanswered):
                raise answer
        return [*found, *[await self._read_then(command) for command in then]]

    async def _once(
        self, node: Node, routed: list[Routed], places: list[int], answers: list[Any]
    ) -> list[int]:
        """Send those once; the places of what it has not done, but another will, or it itself."""
        confirm = self.replicas.confirmation(waited_in(routed[places[0]].key))
        try:
            found = await node.once([routed[at].command for at in places], confirm)
        except TryAgain as error:
            trouble = self.nodes.note_trouble(node, error)
            found = [error if isinstance(error, Unanswered) else trouble] * len(places)
        again = []
        for at, answer in zip(places, found, strict=True):
            answers[at] = answer
            if isinstance(answer, MovedError):
                self.nodes.move(answer, node)
                again.append(at)
            elif isinstance(answer, NoScriptError):
                routed[at] = routed[at]._replace(command=Script.in_full(routed[at].command))
                again.append(at)
        return again

    async def _read_then(self, command: Command) -> Any:
        (answer,) = judge_answers([await self.route(routed_to(command))], raise_on_error=False)
        return answer
