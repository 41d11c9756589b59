#!/usr/bin/env python3
"""The commands of a checkout. They need python3 (3.11 or newer) and nothing else: no pip, no venv module, no root.

  ./go demo [ARGUMENTS]    show pgrouse at work on a private PostgreSQL; arguments go to `pgrouse demo`
  ./go test [ARGUMENTS]    run the tests of what pgrouse promises; arguments go to pytest, and choose from all
  ./go test --full         run all tests that run for each change
  ./go test --changed      run for a minute the tests that the change can affect, nearest first
                           (`--changed=main`: since main)
  ./go check [--fast]      check style, imports, types, migrations and contracts; with --fast all but the types,
                           in seconds
  ./go bench [ARGUMENTS]   run the benchmarks, `--peers` beside other queues; arguments go to `python -m bench`
  ./go docs [--build]      build the documentation site and serve it on this machine; with --build only build it
  ./go release --dry-run   build sdist and wheel of the last commit into dist/, and try them in empty environments
  ./go clean               remove all that these commands made: .venv, caches, private databases

Python packages are installed into .venv by uv, which is fetched by the address and hash in uv.lock if the machine has
none that fits. As root on Debian missing packages (PostgreSQL, pg_cron) are installed with apt-get.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older one gets this far, if there is no newer syntax below
    found = ".".join(map(str, sys.version_info[:2]))
    sys.exit(
        "go: python3 is " + found + ", but pgrouse needs 3.11 or newer: run this with one, as `python3.11 go demo`"
    )

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
# The state of the last installation, so that a start with nothing to install does not even call uv.
INSTALLED = VENV / "installed.json"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgrouse"
CLUSTER_CONF = Path("/etc/postgresql-common/createcluster.d/pgrouse.conf")

FOR_DEMO = ["--extra=demo", "--extra=web", "--extra=metrics"]
FOR_SPARK = ["--extra=spark", "--extra=report"]
FOR_OPERATING = [
    "--extra=uvloop",
    "--extra=rich",
    "--extra=web",
    "--extra=metrics",
    "--extra=otel",
    "--extra=alerts",
    "--extra=sentry",
    "--extra=top",
    "--extra=crypto",
    "--extra=oidc",
    "--extra=schemas",
    "--extra=dev",
]
FOR_BENCH = [*FOR_DEMO, *FOR_SPARK, *FOR_OPERATING, "--extra=java", "--group=uv"]
FOR_DOCS = ["--group=docs"]
FOR_RELEASE = ["--group=uv", "--group=release"]
FOR_TEST = [*FOR_BENCH, "--group=test"]
FOR_CHECK = [*FOR_TEST, "--group=check"]

# The files of the Debian packages of a PostgreSQL version, which show whether these are installed.
SERVER_PACKAGES = {
    "postgresql-{}": "/usr/lib/postgresql/{}/bin/postgres",
    "postgresql-{}-cron": "/usr/lib/postgresql/{}/lib/pg_cron.so",
}
TEST_PACKAGES = SERVER_PACKAGES | {
    "postgresql-{}-plpgsql-check": "/usr/lib/postgresql/{}/lib/plpgsql_check.so",
    "spin": "/usr/bin/spin",
    "gcc": "/usr/bin/gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "chromium-headless-shell": "/usr/bin/chromium-headless-shell",
    "prometheus": "/usr/bin/promtool",
    "pgbouncer": "/usr/sbin/pgbouncer",
    "systemd": "/usr/bin/systemd-analyze",
}

# The tests in two rounds. Those on Spark: two processes with a JVM each fill two cores. Then side by side those that
# mostly wait, for time or for a server (tests/conftest.py says how many). What takes long, and shows no promise alone,
# is left to `./go test -n auto -m long`.
FULL = [["-n", "2", "-m", "spark and not long", "tests/pipeline"], ["-n", "auto", "-m", "not spark and not long"]]
# Of these, what docs/development/promises.md names.
PROMISES = [[*each[:3], f"promise and {each[3]}", *each[4:]] for each in FULL]


def main(arguments: list[str]) -> None:
    """Run the command that is named."""
    commands = {
        "demo": demo,
        "test": test,
        "check": check,
        "bench": bench,
        "docs": docs,
        "release": release,
        "clean": clean,
    }
    command = commands.get(arguments[0]) if arguments else None
    if command is None:
        wants_help = arguments[:1] in (["-h"], ["--help"], ["help"])
        print(__doc__.strip(), file=sys.stdout if wants_help else sys.stderr)
        sys.exit(0 if wants_help else 2)
    os.chdir(ROOT)
    command(arguments[1:])


def demo(arguments: list[str]) -> NoReturn:
    """Show pgrouse at work."""
    if os.geteuid() == 0:
        install_debian_packages(SERVER_PACKAGES)
    install(FOR_DEMO)
    become(VENV / "bin" / "pgrouse", "demo", *arguments)


def test(arguments: list[str]) -> NoReturn:
    """Run the tests."""
    if os.geteuid() == 0:
        install_debian_packages(TEST_PACKAGES)
    install(FOR_TEST)
    changed = any(each.partition("=")[0] == "--changed" for each in arguments)
    rounds = {(): PROMISES, ("--full",): FULL}.get(tuple(arguments))
    pytest = [VENV / "bin" / "python", "-m", "tests.changed" if changed else "pytest"]
    if rounds:
        compile_tests(rounds)
    codes = [
        subprocess.run([*pytest, *each], check=False, env=with_bytecode()).returncode for each in rounds or [arguments]
    ]
    if rounds:
        say("left out: " + what_is_left_out(rounds))
    missing = missing_debian_packages(TEST_PACKAGES)
    if missing:
        say(f"tests were skipped that need Debian packages; to run them: sudo apt-get install {' '.join(missing)}")
    sys.exit(max(codes))


def what_is_left_out(rounds: list[list[str]]) -> str:
    """Return which tests are in no round, each kind with the command that runs it."""
    long = "what takes long: ./go test -n auto -m long; on every server: .ci/run all"
    return long if rounds is FULL else f"what shows no promise: ./go test --full; {long}"


def compile_tests(rounds: list[list[str]]) -> None:
    """Let one process compile what the tests import.

    Otherwise each of the processes that run them does, at the same time.
    """
    if (VENV / "pycache").joinpath(*ROOT.parts[1:], "tests").exists():
        return
    say("compiling what the tests import")
    command = [VENV / "bin" / "python", "-m", "pytest", "--collect-only", "-q", *rounds[-1][2:]]
    subprocess.run(command, check=False, env=with_bytecode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(arguments: list[str]) -> NoReturn:
    """Run every static check, also after one that fails.

    --fast leaves out those of types, which read all modules when one has changed.
    """
    refuse(arguments, "--fast")
    install(FOR_CHECK)
    migrations = sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("sql/migrations/*.sql"))
    types = [["mypy"], ["python", "-m", "tests.typed.pyright"]]
    checks = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["lint-imports", "--no-cache"],
        ["squawk", *migrations],
        ["python", "-m", "docs.generate", "--check"],
        *([] if "--fast" in arguments else types),
    ]
    failed = [" ".join(each[:3]) for each in checks if not passes(each)]
    if failed:
        sys.exit(f"go: failed: {', '.join(failed)}")
    sys.exit(0)


def bench(arguments: list[str]) -> NoReturn:
    """Run the benchmarks."""
    if os.geteuid() == 0:
        install_debian_packages(SERVER_PACKAGES)
    install(FOR_BENCH)
    # As in an installed package: else a daemon that starts compiles everything that it imports.
    os.environ.update(with_bytecode())
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    become(VENV / "bin" / "python", "-m", "bench", *arguments)


def docs(arguments: list[str]) -> NoReturn:
    """Build the documentation site, and serve it."""
    install(FOR_DOCS)
    become(VENV / "bin" / "python", ROOT / "docs" / "build_site.py", *arguments)


def release(arguments: list[str]) -> NoReturn:
    """Build a release and try it; without --dry-run, publish it."""
    install(FOR_RELEASE)
    become(VENV / "bin" / "python", ROOT / "deploy" / "release.py", *arguments)


def refuse(arguments: list[str], *known: str) -> None:
    """Stop when a command was given an argument that it does not take."""
    unknown = [each for each in arguments if each not in known]
    if unknown:
        print(f"go: `{sys.argv[1]}` does not take {unknown[0]}\n\n{__doc__.strip()}", file=sys.stderr)
        sys.exit(2)


def passes(check: list[str]) -> bool:
    """Run one check and return whether it found nothing."""
    say(" ".join(check[:3]))
    return subprocess.run([VENV / "bin" / check[0], *check[1:]], check=False).returncode == 0


def clean(arguments: list[str]) -> None:
    """Remove all that these commands made. Private databases are stopped by those who know how to."""
    refuse(arguments)
    if (VENV / "bin" / "python").exists():
        subprocess.run([VENV / "bin" / "python", "-m", "pgrouse.devdb.cleanup"], check=False)
    for made in [
        VENV,
        CACHE,
        *(ROOT / f".{tool}_cache" for tool in ("pytest", "mypy", "ruff")),
        ROOT / ".hypothesis",
        ROOT / ".peers",
        ROOT / ".site",
        ROOT / "dist",
    ]:
        if made.exists():
            say(f"removing {made}")
            shutil.rmtree(made, ignore_errors=True)


def install(wanted: list[str]) -> None:
    """Bring .venv up to date with uv.lock. What else is in it stays (--inexact): other commands wanted it."""
    state = {"lock": digest_of("uv.lock", "pyproject.toml"), "root": str(ROOT)}
    before = json.loads(INSTALLED.read_text()) if INSTALLED.exists() else {}
    parts = sorted({*wanted, *available_parts().intersection(before.get("parts", []))})
    if before == {**state, "parts": parts} and (VENV / "bin" / "python").exists():
        return
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    say("installing Python packages into .venv")
    sync = [uv(), "sync", "--frozen", "--inexact", "--no-managed-python", *quiet, *parts]
    if subprocess.run(sync, check=False, env=without_venv()).returncode != 0:
        sys.exit("go: uv could not install the Python packages; its message is above")
    INSTALLED.write_text(json.dumps({**state, "parts": parts}))


def available_parts() -> set[str]:
    """Return all extras and groups of pyproject.toml: one that was installed before may be gone since."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = (f"--extra={name}" for name in project["project"]["optional-dependencies"])
    return {*extras, *(f"--group={name}" for name in project["dependency-groups"])}


def digest_of(*names: str) -> str:
    """Return one digest of these files."""
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in names)).hexdigest()


def without_venv() -> dict[str, str]:
    """Return the environment without what would make uv use another virtual environment than ours."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT", "CONDA_PREFIX"}
    }


def with_bytecode() -> dict[str, str]:
    """Return the environment for tests and benchmarks: what they import is compiled once, into .venv.

    They start thousands of processes. Where no bytecode is kept, each compiles everything that it imports, which is two
    thirds of its time.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(VENV / "pycache")}


def uv() -> str:
    """Return a uv that fits.

    It is the one on PATH if it is not older than the one in uv.lock, else that one, fetched once.
    """
    package = locked_uv()
    on_path = shutil.which("uv")
    if on_path and version_of(on_path) >= numbers(package["version"]):
        return on_path
    fetched = CACHE / f"uv-{package['version']}" / "uv"
    if not fetched.exists():
        fetch(wheel_for_here(package["wheels"]), fetched)
    return str(fetched)


def locked_uv() -> dict:
    """Return the entry of uv in uv.lock."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    return next(package for package in lock["package"] if package["name"] == "uv")


def version_of(program: str) -> tuple[int, ...]:
    """Return the version of a uv; () if it does not run."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return numbers(said.partition(" ")[2])


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (0, 13, 8) for `0.13.8 (abc 2026-10-01)`."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition(" ")[0])[:3])


def wheel_for_here(wheels: list[dict]) -> dict:
    """Return the wheel of uv for this machine."""
    for wheel in wheels:
        tags = wheel["url"].rsplit("/", 1)[1].removesuffix(".whl").split("-")[-1]
        if any(runs_here(tag) for tag in tags.split(".")):
            return wheel
    sys.exit(
        f"go: uv.lock has no uv for {sys.platform} on {platform.machine()}: "
        "install uv by other means and put it on PATH"
    )


def runs_here(tag: str) -> bool:
    """Return whether a program with this platform tag, as manylinux_2_17_x86_64, runs on this machine."""
    parts = re.fullmatch(r"(manylinux|musllinux|macosx)_(\d+)_(\d+)_(\w+)", tag)
    if parts is None or parts[4] != platform.machine():
        return False
    kind, version = system()
    return parts[1] == kind and (int(parts[2]), int(parts[3])) <= version


def system() -> tuple[str, tuple[int, ...]]:
    """Return what platform tags begin with on this machine, and the newest version that runs here."""
    if sys.platform == "darwin":
        return "macosx", numbers(platform.mac_ver()[0])
    name, version = platform.libc_ver()
    return ("manylinux", numbers(version)) if name == "glibc" else ("musllinux", (1, 2))


def fetch(wheel: dict, target: Path) -> None:
    """Download uv's wheel, make sure that it is the one in uv.lock, and unpack its program to `target`."""
    say(f"fetching {wheel['url'].rpartition('/')[2]}")
    try:
        with urllib.request.urlopen(wheel["url"], timeout=60) as response:
            content = response.read()
    except (urllib.error.URLError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        sys.exit(
            f"go: {wheel['url']} cannot be fetched ({reason}): install uv by other means (pipx install uv) and "
            "put it on PATH"
        )
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != wheel["hash"]:
        sys.exit(f"go: what came from {wheel['url']} is not what uv.lock says (its SHA-256 differs): try again")
    unpack(content, target)


def unpack(content: bytes, target: Path) -> None:
    """Write the program in the wheel under another name and rename.

    Half a file is then never taken for a whole one.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as wheel:
        program = wheel.read(next(name for name in wheel.namelist() if name.endswith("/scripts/uv")))
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f"uv.{os.getpid()}")
    half.write_bytes(program)
    half.chmod(0o755)
    half.rename(target)


def install_debian_packages(packages: dict[str, str]) -> None:
    """Install what is missing, as root.

    Without it there is still the PostgreSQL in a wheel, so a failure is told and not the end.
    """
    if not missing_debian_packages(packages):
        return
    apt_get("update")
    with no_default_cluster():
        apt_get("install", "--yes", "--no-install-recommends", *missing_debian_packages(packages))


def missing_debian_packages(packages: dict[str, str]) -> list[str]:
    """Return the names of the packages whose files are missing; none on a system that is not Debian's kin."""
    if not shutil.which("apt-get"):
        return []
    version = postgresql_version()
    return [name.format(version) for name, file in packages.items() if not Path(file.format(version)).exists()]


def postgresql_version() -> str:
    """Return the major version to use: the newest one installed with pg_cron, else this Debian's own."""
    installed = [file.parts[4] for file in Path("/usr/lib/postgresql").glob("*/lib/pg_cron.so")]
    if installed:
        return max(installed, key=int)
    said = subprocess.run(["apt-cache", "depends", "postgresql"], capture_output=True, text=True, check=False).stdout
    own = re.search(r"Depends: postgresql-(\d+)", said)
    return own[1] if own else "15"


def apt_get(*arguments: str) -> None:
    """Run apt-get. What it says itself is only shown when it fails."""
    say(f"apt-get {' '.join(word for word in arguments if not word.startswith('-'))}")
    done = subprocess.run(
        ["apt-get", "-q", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        say(f"apt-get {arguments[0]} failed, going on without:\n{done.stdout.strip()}")


@contextmanager
def no_default_cluster() -> Iterator[None]:
    """Keep Debian from making and starting a server of its own with the packages.

    What the administrator installs later is not touched.
    """
    CLUSTER_CONF.parent.mkdir(parents=True, exist_ok=True)
    CLUSTER_CONF.write_text("create_main_cluster = false\n")
    try:
        yield
    finally:
        CLUSTER_CONF.unlink()


def become(program: Path, *arguments: str | Path) -> NoReturn:
    """Go on as this program."""
    sys.stdout.flush()
    os.execv(program, [str(program), *map(str, arguments)])


def say(sentence: str) -> None:
    """Tell the user, apart from the output of the command."""
    print(f"go: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
