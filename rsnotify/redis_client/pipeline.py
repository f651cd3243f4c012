"""A pipeline: its commands are sent together, those of a Cluster to their nodes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from redis.asyncio.client import Pipeline as LibraryPipeline

from rsnotify.redis_client.round_trip import judge_answers, parsed_as
from rsnotify.redis_client.script import Command


class PipelineClient(Protocol):
    """The client of one Redis or of a Cluster."""

    is_cluster: bool
    connection_pool: Any
    response_callbacks: Any

    async def together(self, commands: Sequence[Command]) -> list[Any]: ...

    async def atomically(self, commands: Sequence[Command]) -> list[Any]: ...


class Pipeline(LibraryPipeline):
    """Collects commands; those of a transaction are of one slot."""

    def __init__(self, client: PipelineClient, transaction: bool) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, None)
        self._client = client
        self._stages = [0]

    def afterwards(self) -> None:
        """In a Cluster, what is added from here on is sent when all before it is answered; one
        server keeps the order anyway."""
        if self._client.is_cluster:
            self._stages.append(len(self.command_stack))

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, stages = self.command_stack, [*self._stages, len(self.command_stack)]
        self.command_stack, self._stages = [], [0]
        commands = [command for command, _ in stack]
        answers: list[Any] = []
        if self.is_transaction and commands:
            answers = await self._client.atomically(commands)
        else:
            for begin, end in pairwise(stages):
                answers += await self._client.together(commands[begin:end])
        found = judge_answers(answers, raise_on_error=raise_on_error)
        return [
            answer
            if isinstance(answer, Exception)
            else parsed_as(self.response_callbacks, command, answer, options)
            for (command, options), answer in zip(stack, found, strict=True)
        ]
