"""The table `[web.oidc]` of the configuration: the provider by which users log in, and what they may do."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints

from pgrouse.config.section import Section
from pgrouse.values.topic_pattern import MAX_BYTES, NAME

LOCAL_ISSUER = r"http://(localhost|127\.0\.0\.1|\[::1\])"


def _issuer(text: str) -> str:
    """Check the address of a provider: what it answers decides who a user is, so no one may change it on the way."""
    if not re.fullmatch(rf"(https://[^\s/@?#:]+|{LOCAL_ISSUER})(:\d+)?(/[^\s@?#]*)?", text):
        raise ValueError(f'expected an address like "https://login.example.com", found {text!r:.80}')
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
# As of a token.
Topics = Annotated[str, StringConstraints(pattern=rf"^(\*|({NAME}\.)?\*\*|{NAME}\*?)$", max_length=MAX_BYTES)]


class OidcAccess(Section):
    """What the members of a group may do: a table `[[web.oidc.access]]`."""

    group: Text
    """The group, as the provider names it."""
    roles: list[Literal["viewer", "publisher", "worker", "operator"]] = Field(min_length=1)
    """The roles that its members have, as of a token."""
    topics: list[Topics] = Field(default=["*"], min_length=1, max_length=100)
    """The topics that these roles are for, as of a token."""


class OidcSettings(Section):
    """Login by a provider of OpenID Connect, `[web.oidc]`."""

    issuer: Annotated[str, AfterValidator(_issuer)]
    """The provider's address, exactly as it names itself."""
    client_id: Text
    """The name under which the provider knows this web server."""
    client_secret: SecretStr
    """The secret of `client_id`: `"${NAME}"`, from the environment."""
    label: Text = "single sign-on"
    """The provider's name in `Log in with …`."""
    scopes: list[Text] = ["openid", "email", "profile"]
    """What the provider is asked for."""
    name_claim: Text = "email"
    """The claim with the user's name for the audit log."""
    groups_claim: Text = "groups"
    """The claim with the user's groups: its name, or a path like `realm_access.roles`."""
    access: list[OidcAccess] = Field(min_length=1)
    """What users may do: the first table whose group the user is in decides. Others are not let in."""
