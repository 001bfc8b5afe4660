"""The admin application: metrics, health, statistics and the live page. Everything here reads."""

from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quantumqtt.api.health import Health, liveness, readiness
from quantumqtt.api.hosts import HostGuard
from quantumqtt.api.metrics import metrics_registry, render_metrics
from quantumqtt.api.page import live_page
from quantumqtt.api.view import BrokerView, Jobs, NodeFacts, no_jobs, statistics_document
from quantumqtt.errors import ConfigError, QuantuMQTTError
from quantumqtt.policy import explain

_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class SecurityHeaders:
    """ASGI middleware that adds our headers wherever a response did not set its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers when the response starts."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def admin_app(
    broker: BrokerView,
    facts: NodeFacts,
    *,
    host_names: tuple[str, ...] = (),
    explains_rules: bool = True,
    jobs: Jobs = no_jobs,
) -> Starlette:
    """Make the application for one broker.

    Rules are explained to whoever asks; where others than this machine can ask, they are not.
    """
    registry = metrics_registry(broker, facts, jobs)

    async def page(_request: Request) -> Response:
        live = live_page()
        return Response(
            live.body,
            media_type="text/html; charset=utf-8",
            headers={"content-security-policy": live.content_security_policy},
        )

    async def metrics(request: Request) -> Response:
        body, content_type = render_metrics(registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def livez(_request: Request) -> Response:
        return _health_response("alive", liveness(broker))

    async def readyz(_request: Request) -> Response:
        return _health_response("ready", readiness(broker))

    async def statistics(_request: Request) -> Response:
        return JSONResponse(statistics_document(broker, facts, jobs))

    async def why_denied(request: Request) -> Response:
        if not explains_rules:
            problem = "rules are explained on a loopback admin address only"
            return JSONResponse({"problem": problem}, status_code=403)
        asked = request.query_params
        try:
            answer = explain(
                broker.access.rules,
                user=asked.get("user", ""),
                client_id=asked.get("client", ""),
                action=asked.get("action", "read"),
                topic=asked.get("topic", ""),
            )
        except ConfigError as error:
            document = {"problem": str(error), "remedy": error.hint}
            return JSONResponse(document, status_code=400)
        return JSONResponse(answer)

    async def digest(_request: Request) -> Response:
        if not explains_rules:
            return _problem("the state is digested on a loopback admin address only", 403)
        try:
            index, found = await run_in_threadpool(broker.digest)
        except QuantuMQTTError as error:
            return _problem(str(error), 503)
        return JSONResponse({"index": index, "digest": found})

    async def session(request: Request) -> Response:
        if not explains_rules:
            return _problem("sessions are shown on a loopback admin address only", 403)
        client_id = str(request.path_params["client_id"])
        try:
            found = await run_in_threadpool(broker.session, client_id)
        except QuantuMQTTError as error:
            return _problem(str(error), 503)
        if found is None:
            return _problem(f"no session is stored for client id {client_id!r}", 404)
        return JSONResponse(found)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/metrics", metrics),
            Route("/livez", livez),
            Route("/readyz", readyz),
            Route("/v1/statistics", statistics),
            Route("/v1/why-denied", why_denied),
            Route("/v1/digest", digest),
            Route("/v1/sessions/{client_id:path}", session),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(HostGuard, names=host_names)],
    )


def _problem(words: str, status_code: int) -> Response:
    return JSONResponse({"problem": words}, status_code=status_code)


def _health_response(word: str, health: Health) -> Response:
    document: dict[str, object] = {word: health.is_well, "reasons": list(health.reasons)}
    if health.details:
        document["details"] = list(health.details)
    return JSONResponse(document, status_code=health.status_code)
