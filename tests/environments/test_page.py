"""The page of environments lists the settings that are set, as they are."""

from __future__ import annotations

import re
from pathlib import Path

from pgrouse.database import session_settings
from pgrouse.database.install import schema

PAGE = (Path(__file__).parents[2] / "docs/operating/environments.md").read_text("utf-8")
ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)` \|", re.MULTILINE)


def section(heading: str) -> str:
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def test_the_page_has_each_setting_of_a_session_and_what_is_refused() -> None:
    listed = dict(ROW.findall(section("Settings of a session")))

    refused = {session_settings.CHANGED_BY.get(name, name) for name in session_settings.WRITING}
    assert {name: value for name, value in listed.items() if name not in refused} == session_settings.SETTINGS
    assert refused <= listed.keys()


def test_the_page_names_what_a_session_behind_a_pooler_needs() -> None:
    needed = session_settings.NEEDED.keys() - session_settings.WRITING.keys()

    assert [name for name in needed if f"`{name}`" not in PAGE.split("**Behind a pooler")[1].split("\n## ")[0]] == []


def test_the_page_names_each_setting_of_a_function() -> None:
    applied = set(re.findall(r"'(\w+)=", schema.script("settings.sql").decode())) | {"lock_timeout"}

    assert set(re.findall(r"`(\w+)`", section("Settings of functions"))) - {"standard_conforming_strings"} == applied
