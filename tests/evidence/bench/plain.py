"""The same fan-out as it is usually written: starlette, a set of sockets, `send_text`."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

readers: set[WebSocket] = set()


async def channel(websocket: WebSocket) -> None:
    await websocket.accept()
    readers.add(websocket)
    try:
        while True:
            await websocket.receive_text()
    except WebSocketDisconnect:
        readers.discard(websocket)


async def publish(request: Request) -> Response:
    text = (await request.body()).decode()
    for reader in readers:
        await reader.send_text(text)
    return Response(status_code=201)


routes = [WebSocketRoute("/channel", channel), Route("/publish", publish, methods=["POST"])]

if __name__ == "__main__":
    uvicorn.run(
        Starlette(routes=routes),
        port=int(sys.argv[1]),
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        log_level="error",
        backlog=4096,
    )
