"""docs/reference/doctor.md has every code of the doctor, with its levels."""

from __future__ import annotations

import re

from pgrouse.doctor import CODES
from tests.docs.page import Page

PAGE = Page("docs/reference/doctor.md")
ROWS = {row[0].strip("`"): row for row in PAGE.rows() if len(row) == 4}


def test_every_code_is_on_the_page_and_no_other() -> None:
    assert sorted(ROWS) == sorted(CODES)


def test_each_code_has_its_levels_and_its_fix() -> None:
    wrong = {
        code: (what, levels, fix)
        for code, (_, what, levels, fix) in ROWS.items()
        if not (set(re.findall(r"\w+", levels)) & {"ok", "warn", "fail"} and what and fix)
    }

    assert wrong == {}
