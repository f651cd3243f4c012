"""The client of a Cluster: sends each command to the node that has its keys.

A node that has handed a slot over says so, and did nothing: the command goes to the node that it
names. While a slot is moved, a command for one key is done where that key is; one for several keys
may be refused until all have arrived (`TryAgain`), and so is whatever is sent `once`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Self

from redis import asyncio as redis
from redis.exceptions import AskError, ClusterDownError, MovedError, NoScriptError, TryAgainError

from rsnotify.errors import KeysMoving, PartAway, TryAgain, Unanswered
from rsnotify.redis_client.address import Address
from rsnotify.redis_client.client import (
    MoreCommands,
    Pipeline,
    RedisClient,
    Servers,
    answer_raw,
    as_transaction,
    durably,
    executed,
)
from rsnotify.redis_client.cluster.nodes import Node, Nodes, Routed, routed_to, slot_of, waited_in
from rsnotify.redis_client.pool import Command
from rsnotify.redis_client.round_trip import Replicas, Script, judge_answers, parsed_as

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


REDIRECTIONS = 5  # one after the other, before it is given up for now


class ClusterClient(MoreCommands, redis.Redis):  # type: ignore[misc] # the library's own bases
    """As `RedisClient`, for all nodes together."""

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
        """Commands of the same lane wait for the same server."""
        return str(self.nodes.known(slot_of(tag)))

    async def servers(self) -> Servers:
        """The server of each slot; one that does not answer keeps the name that it had."""
        await self.nodes.refresh()
        await asyncio.gather(*map(self._ask_name, self.nodes.masters))
        return Servers(self.nodes.servers())

    async def _ask_name(self, node: Node) -> None:
        try:
            ((node.server,),) = await node.client.servers()
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

    async def durably(self, commands: Sequence[Command]) -> list[Any]:
        """Execute these like `once`, again if the connection was lost; an error is raised."""
        return await durably(self, commands)
