"""What `./go release` makes: notes, links, addresses, and the same bytes from the same commit.

`.ci/run` runs all of it.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from deploy import release

ROOT = release.ROOT
REPOSITORY = "https://example.org/pgrouse"
CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\nsoon\n\n## [1.1.0] - 2027-01-31\n\n### Added\n\n- b\n\n## [1.0.0]\n\n- a\n"
)


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def test_the_notes_are_the_section_of_the_version() -> None:
    assert release.notes_of(CHANGELOG, "1.1.0", is_strict=True) == "### Added\n\n- b\n"
    assert release.notes_of(CHANGELOG, "1.0.0", is_strict=True) == "- a\n"


def test_a_dry_run_takes_what_is_not_released_yet() -> None:
    assert release.notes_of(CHANGELOG, "1.2.0", is_strict=False) == "soon\n"
    with pytest.raises(click.ClickException, match=r"no section \[1\.2\.0\]: rename \[Unreleased\]"):
        release.notes_of(CHANGELOG, "1.2.0", is_strict=True)


def test_every_link_of_the_readme_leads_to_the_repository() -> None:
    readme = (ROOT / "README.md").read_text()
    relative = {link[3].partition("#")[0] for link in release.LINK.finditer(readme)}

    page = release.with_absolute_links(readme, REPOSITORY, "0.1.0")

    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert all(target.startswith(("https://", "#")) for target in targets)
    assert f"![The dashboard]({REPOSITORY}/raw/v0.1.0/docs/images/dashboard-overview.png)" in page
    assert f"({REPOSITORY}/tree/v0.1.0/docs/decisions/)" in page
    assert len(relative) > 30
    assert all((ROOT / target).exists() for target in relative)


def test_the_package_has_the_addresses() -> None:
    project = tomllib.loads(release.with_addresses((ROOT / "pyproject.toml").read_text(), REPOSITORY))["project"]

    assert project["urls"]["Issues"] == f"{REPOSITORY}/issues"
    assert project["scripts"] == {"pgrouse": "pgrouse.cli:main"}


def test_every_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(release.EXTRAS) == set(project["optional-dependencies"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_same_commit_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number in "12":
        monkeypatch.setattr(release, "DIST", tmp_path / number)
        release.build(REPOSITORY, "0.1.0")
        found.append(digests(tmp_path / number))

    assert len(found[0]) == 2
    assert found[0] == found[1]


@contextmanager
def small_project(folder: Path) -> Iterator[Path]:
    """The sources of a commit: building them takes a moment."""
    folder.mkdir(exist_ok=True)
    (folder / "small.py").touch()
    (folder / "README.md").write_text("shown")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling>=1.27"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "small"\nversion = "0.1.0"\nreadme = "README.md"\n'
    )
    yield folder


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_readme_that_an_index_cannot_show_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")
    monkeypatch.setattr(release, "_last_commit", partial(small_project, tmp_path / "sources"))
    release.build(REPOSITORY, "0.1.0")
    monkeypatch.setattr(release, "with_absolute_links", lambda *_: "")

    with pytest.raises(click.ClickException, match="twine"):
        release.build(REPOSITORY, "0.1.0")


def test_a_release_without_a_section_in_the_changelog_is_refused() -> None:
    done = CliRunner().invoke(release.release, ["--repository", REPOSITORY])

    assert done.exit_code == 1
    assert "CHANGELOG.md has no section [0.1.0]" in done.output
