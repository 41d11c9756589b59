"""The protocols as Spin models: searched completely without an error, and wrong without any one of their parts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TOOLS = ("spin", "gcc")
DEPTH = 2_000_000
# The size of the table of states, 128 MiB, is enough for the 2 million states of the larger model.
HASH_BITS = 24

pytestmark = [
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in TOOLS), reason="spin or gcc is missing: `apt-get install spin gcc`"
    ),
    # A search of all states computes for minutes where other tests compute too, and waits for nothing.
    pytest.mark.timeout(1800),
]


def search(model: str, folder: Path, *definitions: str) -> str:
    """Search all states of a model for errors, and return the report. Spin writes into the working directory."""
    arguments = [f"-D{each}" for each in definitions]
    optimization = "-O0" if definitions else "-O1"  # what fails soon is not worth compiling for long
    for command in (
        ["spin", "-a", *arguments, str(FOLDER / f"{model}.pml")],
        ["gcc", optimization, "-w", "-DSAFETY", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    command = ["./pan", f"-m{DEPTH}", f"-w{HASH_BITS}"]
    report = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert "max search depth too small" not in report
    return report


def errors(report: str) -> int:
    found = re.search(r"errors: (\d+)", report)
    assert found, report
    return int(found[1])


def never_reached(report: str) -> set[str]:
    """Return the states that the search did not reach, with their statements."""
    return set(re.findall(r"state \d+, \"(.*)\"", report))


@pytest.mark.parametrize("model", ["wake", "fence"])
@pytest.mark.slow
def test_the_protocol_holds_in_every_state(model: str, tmp_path: Path) -> None:
    report = search(model, tmp_path)

    assert errors(report) == 0
    assert "Search not completed" not in report
    assert never_reached(report) <= {"-end-", "assert(!(waiting))"}, "an unreached part of the model proves nothing"


@pytest.mark.long
@pytest.mark.parametrize(
    "variant",
    [
        "NAIVE",
        "ONE_CLAIM",
        "XMAX",
        "XID_BEFORE_FLAG",
        "XMIN_AFTER_CLAIM",
        "OLD_SNAPSHOT",
        "FLAG_BEFORE_ROW",
        "STALE_HORIZON",
        "ONE_FLAG",
        "GATE_AFTER_XID",
        "LOWERED_TOO_SOON",
        "IGNORE_NOTIFY",
        "PAUSE_IS_SLEEP",
        "SKIP_AND_SLEEP",
    ],
)
def test_without_this_part_a_worker_sleeps_while_a_message_waits(variant: str, tmp_path: Path) -> None:
    report = search("wake", tmp_path, variant)

    assert "assertion violated  !(waiting)" in report


@pytest.mark.long
@pytest.mark.parametrize("variant", ["BY_ID", "BY_LOCK", "BY_ATTEMPTS", "BY_WORKER"])
def test_with_a_weaker_fence_an_attempt_ends_that_of_another(variant: str, tmp_path: Path) -> None:
    report = search("fence", tmp_path, variant)

    assert "assertion violated (holder==me)" in report


@pytest.mark.parametrize("variant", ["INSERT_FIRST", "DELETE_FIRST"])
def test_with_an_archive_in_two_transactions_a_message_is_in_two_tables_or_in_none(
    variant: str, tmp_path: Path
) -> None:
    report = search("fence", tmp_path, variant)

    assert "assertion violated ((((live+archived)==1)" in report


def test_every_variant_that_a_model_names_is_tried() -> None:
    for model in ("wake", "fence"):
        text = (FOLDER / f"{model}.pml").read_text()
        named = set(re.findall(r"^     ([A-Z_]{3,})\s", text, re.MULTILINE))
        used = set(re.findall(r"defined?\s?\(?([A-Z_]{3,})\)?|ifn?def ([A-Z_]{3,})", text))
        tried = set(re.findall(r'"([A-Z_]{3,})"', Path(__file__).read_text()))

        assert named
        assert named <= tried
        assert named <= {name for pair in used for name in pair}
