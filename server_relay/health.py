"""`/healthz`, `/readyz` and `/metrics`, on a port of their own that no device needs to reach."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from websockets.asyncio.server import Server, ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from server_relay.doors import named_hosts, names_host
from server_relay.exposition import CONTENT_TYPE, exposition
from server_relay.logs import silent_logger
from server_relay.metrics import RelayMetrics

__all__ = ["Health"]

_SOCKETS_MAX = 64


class Health:
    """Answers requests about a relay. `port` is the bound one once it was started."""

    def __init__(
        self,
        metrics: Callable[[], Awaitable[RelayMetrics]],
        sick: Callable[[], str],
        unready: Callable[[], tuple[str, ...]],
    ) -> None:
        """`sick` says why the process should be started anew, `unready` why no device should be sent here; both are
        empty when all is well."""
        self._metrics = metrics
        self._sick = sick
        self._unready = unready
        self._server: Server | None = None
        self._hosts: frozenset[str] = frozenset()
        self.port = 0

    async def start(self, host: str, port: int, backlog: int = _SOCKETS_MAX) -> None:
        """Begin to answer; raises OSError for the address."""
        self._hosts = named_hosts((), host)
        self._server = await serve_websockets(
            self._never,
            host,
            port,
            process_request=self._answer,
            compression=None,
            server_header=None,
            max_size=1024,
            open_timeout=5,
            close_timeout=1,
            backlog=backlog,
            logger=silent_logger(),
        )
        self.port = int(next(iter(self._server.sockets)).getsockname()[1])

    async def close(self) -> None:
        """Stop answering; idempotent."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _never(self, websocket: ServerConnection) -> None:
        """No websocket is ever opened here: every request is answered before."""

    async def _answer(self, websocket: ServerConnection, request: Request) -> Response:
        if not names_host(request, self._hosts):
            return _text(HTTPStatus.FORBIDDEN, "This relay is reached under another name.\n")
        match request.path.partition("?")[0]:
            case "/healthz":
                sick = self._sick()
                return _text(HTTPStatus.SERVICE_UNAVAILABLE if sick else HTTPStatus.OK, f"{sick or 'ok'}\n")
            case "/readyz":
                reasons = self._unready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
                return _text(status, f"{', '.join(reasons) or 'ready'}\n")
            case "/metrics":
                return _response(HTTPStatus.OK, CONTENT_TYPE, exposition(await self._metrics()))
            case _:
                return _text(HTTPStatus.NOT_FOUND, "There is /healthz, /readyz and /metrics.\n")


def _text(status: HTTPStatus, text: str) -> Response:
    return _response(status, "text/plain; charset=utf-8", text.encode())


def _response(status: HTTPStatus, content_type: str, body: bytes) -> Response:
    headers = Headers(
        [
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ]
    )
    return Response(status.value, status.phrase, headers, body)
