"""A small provider of OpenID Connect for tests: in a thread, on a free port, under the name `localhost`.

It logs in anyone who follows the link of its page. The test decides what it says of the user, and of itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from joserfc.jws import JWSRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from pgrouse.web.access import listen_socket
from tests.server.deadline import eventually

CLIENT_ID, CLIENT_SECRET = "pgrouse", "of the client"
USER = {"sub": "7", "email": "ada@example.com", "email_verified": True, "groups": ["staff", "oncall"]}


class OidcProvider:
    """The provider.

    Attributes:
        user: the claims of the user who logs in next.
        changes: what differs in the next id_token: claims, and `key` or `alg`.
        userinfo: what the endpoint of that name answers.
        itself: what it says of itself.
    """

    def __init__(self) -> None:
        self._socket = listen_socket.bind("127.0.0.1:0")
        self.issuer = f"http://localhost:{self._socket.getsockname()[1]}"
        self.key = RSAKey.generate_key(2048, {"kid": "1"})
        self.itself: dict[str, Any] = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        for name in ("authorization", "token", "userinfo"):
            self.itself[f"{name}_endpoint"] = f"{self.issuer}/{name}"
        self.reset()
        paths = {
            "/.well-known/openid-configuration": self._describe,
            "/authorization": self._authorize,
            "/token": self._exchange,
            "/userinfo": self._inform,
            "/keys": self._keys,
        }
        routes = [Route(path, answer, methods=["GET", "POST"]) for path, answer in paths.items()]
        self._server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        eventually(lambda: self._server.started)

    def reset(self) -> None:
        """Forget what a test has set."""
        self.user: dict[str, Any] = dict(USER)
        self.changes: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {"sub": USER["sub"]}
        self._codes: dict[str, dict[str, str]] = {}

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        self._socket.close()

    async def _describe(self, request: Request) -> JSONResponse:
        return JSONResponse(self.itself)

    async def _keys(self, request: Request) -> JSONResponse:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def _authorize(self, request: Request) -> HTMLResponse:
        asked, code = dict(request.query_params), secrets.token_urlsafe(16)
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert asked["code_challenge_method"] == "S256"
        self._codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"]})
        return HTMLResponse(f'<title>Provider</title><a href="{asked["redirect_uri"]}?{back}">Log in</a>')

    async def _exchange(self, request: Request) -> JSONResponse:
        given = await request.form()
        asked = self._codes.pop(str(given["code"]), None)
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if asked is None or request.headers["authorization"] != f"Basic {basic}":
            return JSONResponse({"error": "invalid_grant"}, 400)
        hashed = hashlib.sha256(str(given["code_verifier"]).encode()).digest()
        challenge = base64.urlsafe_b64encode(hashed).decode().rstrip("=")
        if (challenge, given["redirect_uri"]) != (asked["code_challenge"], asked["redirect_uri"]):
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = {"access_token": "a", "token_type": "Bearer", "id_token": self._id_token(asked["nonce"])}
        return JSONResponse(token)

    def _id_token(self, nonce: str) -> str:
        now = int(time.time())
        changes = dict(self.changes)
        alg, key = changes.pop("alg", "RS256"), changes.pop("key", self.key)
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= {**self.user, **changes}
        if alg == "none":
            parts = [json.dumps(each).encode() for each in ({"alg": "none"}, claims)]
            return ".".join([*(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts), ""])
        return jwt.encode({"alg": alg, "kid": "1"}, claims, key, registry=JWSRegistry(algorithms=[alg]))

    async def _inform(self, request: Request) -> JSONResponse:
        assert request.headers["authorization"] == "Bearer a"
        return JSONResponse(self.userinfo)
