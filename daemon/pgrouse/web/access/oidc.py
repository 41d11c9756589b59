"""Login by a provider of OpenID Connect: the authorization code flow, with state, nonce and PKCE.

The browser keeps one random secret while its user is at the provider. State, nonce and verifier are made of it, so the
server keeps nothing, and an answer is worth nothing in another browser.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pgrouse.config.config import Config
from pgrouse.config.oidc import OidcAccess, OidcSettings
from pgrouse.errors import ConfigError
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.values.printable import printable
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.http.problem import Problem, unavailable

CALLBACK = "/login/oidc/callback"
# What all requests of one step of a login may take.
PROVIDER_S = 10.0
# The maximum number of steps at the same time: each of them makes requests to the provider.
MAX_AT_ONCE = 20
# How far the clock of the provider may differ.
LEEWAY_S = 60
# Signatures that only the provider can make. Without this list, the provider's own decides.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
MAX_NAME = 150


class OidcLogin:
    """What one web server needs to log users in.

    Args:
        settings: section `web`, with `web.oidc` and `web.url`.

    Raises:
        ConfigError: the extra `oidc` is not installed.
    """

    def __init__(self, settings: Config) -> None:
        try:
            from authlib.integrations.starlette_client import OAuthError, StarletteOAuth2App  # noqa: PLC0415 - extra oidc
            from joserfc.errors import JoseError  # noqa: PLC0415 - extra oidc
        except ModuleNotFoundError as error:
            raise ConfigError(f"web.oidc needs {error.name}: pip install 'pgrouse[oidc]'") from error
        oidc = settings.web.oidc
        if oidc is None:
            raise ConfigError("web.oidc is missing")
        self.settings: OidcSettings = oidc
        self.redirect_uri = f"{settings.web.url}{CALLBACK}"
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._refusals = (OAuthError, JoseError)
        self._client: Any = StarletteOAuth2App(
            None,
            client_id=oidc.client_id,
            client_secret=oidc.client_secret.get_secret_value(),
            server_metadata_url=f"{oidc.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={"scope": " ".join(oidc.scopes), "code_challenge_method": "S256", "timeout": PROVIDER_S},
        )

    async def begin(self) -> tuple[str, str]:
        """Return where the provider asks the user to log in, and the secret that the browser keeps until then.

        Raises:
            Problem: 503, the provider does not answer, or is not the one of the configuration.
        """
        secret = secrets.token_urlsafe(32)
        async with self._asking():
            await self._read_provider()
            created = await self._client.create_authorization_url(
                self.redirect_uri,
                state=_derive(secret, "state"),
                nonce=_derive(secret, "nonce"),
                code_verifier=_derive(secret, "verifier"),
            )
        return created["url"], secret

    async def finish(self, secret: str, answer: Mapping[str, str]) -> Caller:
        """Return who has logged in.

        Args:
            secret: of `begin`, as the browser kept it.
            answer: the parameters with which the provider sent the browser back.

        Raises:
            Problem: 400 the login did not begin in this browser, or is over; 403 the provider refused the user, or the
                user is in no group of the configuration; 503.
        """
        if not (secret and hmac.compare_digest(_derive(secret, "state").encode(), answer.get("state", "").encode())):
            raise Problem(400, "this login is over, or began in another browser: log in again", "login_over")
        if "code" not in answer:
            said = f"{answer.get('error', 'no code')}: {answer.get('error_description', '')}".rstrip(": ")
            raise Problem(403, f"{self.settings.label} refused the login ({said:.300})", "login_refused")
        async with self._asking():
            await self._read_provider()
            return self._caller(await self._read_claims(answer["code"], secret))

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Ask the provider: not too often at once, and not for too long. What goes wrong is logged.

        Raises:
            Problem: 403 the provider does not accept the code, or what it says of the user is not valid; 503.
        """
        try:
            async with asyncio.timeout(PROVIDER_S), self._slots:
                yield
        except Problem:
            raise
        except Exception as error:
            log.warning(events.WEB_LOGIN_FAILED, issuer=self.settings.issuer, reason=f"{type(error).__name__}: {error}")
            if isinstance(error, self._refusals):
                raise Problem(403, "the login is not valid: log in again, or see the log", "login_refused") from error
            raise unavailable(f"{self.settings.label} does not answer as expected: see the log") from error

    async def _read_provider(self) -> None:
        """Read once what the provider says of itself.

        Raises:
            ValueError: it calls itself something else.
        """
        found = await self._client.load_server_metadata()
        if (named := found.get("issuer")) != self.settings.issuer:
            found.clear()
            raise ValueError(f"web.oidc.issuer is {self.settings.issuer}, but it calls itself {named}: set this")
        found["id_token_signing_alg_values_supported"] = ALGORITHMS

    async def _read_claims(self, code: str, secret: str) -> dict[str, Any]:
        """Return what the provider says of the user; a code that it does not accept is an error."""
        token = await self._client.fetch_access_token(
            self.redirect_uri, code=code, code_verifier=_derive(secret, "verifier")
        )
        options = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
        }
        claims = await self._client.parse_id_token(token, _derive(secret, "nonce"), options, leeway=LEEWAY_S)
        if claims is None:
            raise ValueError('the provider sent no id_token: web.oidc.scopes needs "openid"')
        if _claim(claims, self.settings.groups_claim) is None and "userinfo_endpoint" in self._client.server_metadata:
            more = await self._client.userinfo(token=token)
            if more.get("sub") != claims["sub"]:
                raise ValueError("userinfo is about another user")
            claims = {**more, **claims}
        return dict(claims)

    def _caller(self, claims: dict[str, Any]) -> Caller:
        """Return the user with the rights of the group."""
        name = self._name(claims)
        found = _claim(claims, self.settings.groups_claim)
        listed = found if isinstance(found, list) else [found]
        groups = {each for each in listed if isinstance(each, str)}
        access = next((each for each in self.settings.access if each.group in groups), None)
        if access is None:
            log.warning(events.WEB_LOGIN_FAILED, issuer=self.settings.issuer, reason=f"{name} is in no known group")
            raise Problem(403, self._no_group(name, found), "no_group")
        return _with_rights(name, access)

    def _no_group(self, name: str, found: object) -> str:
        claim = self.settings.groups_claim
        if found is None:
            return f"{self.settings.label} sent no claim {claim!r} of {name}: see web.oidc.groups_claim and scopes"
        return f"{name} is in no group that [[web.oidc.access]] names: add one, or add the user to a group there"

    def _name(self, claims: Mapping[str, Any]) -> str:
        """Return the name for the audit. One that the provider does not vouch for, or that misleads, is not used."""
        found = claims.get(self.settings.name_claim)
        is_unverified = self.settings.name_claim == "email" and claims.get("email_verified") in (False, "false")
        name = found if isinstance(found, str) and found and not is_unverified else claims["sub"]
        try:
            return f"oidc:{printable(name)[:MAX_NAME]}"
        except ValueError:
            return f"oidc:{printable(claims['sub'])[:MAX_NAME]}"


def _with_rights(name: str, access: OidcAccess) -> Caller:
    return Caller(name, frozenset(map(Role, access.roles)), tuple(access.topics))


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by the path to it."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _derive(secret: str, purpose: str) -> str:
    """Return what is made of a secret; it does not tell the secret."""
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()
