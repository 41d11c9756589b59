"""docs/reference/doctor.md knows every code of the doctor, and how bad it can be."""

from __future__ import annotations

import re

from pgrouse.doctor import CODES
from tests.docs.page import Page

PAGE = Page("docs/reference/doctor.md")
ROWS = {row[0].strip("`"): row for row in PAGE.rows() if len(row) == 4}


def test_every_code_is_on_the_page_and_no_other() -> None:
    assert sorted(ROWS) == sorted(CODES)


def test_each_says_how_bad_it_can_be_and_what_mends_it() -> None:
    wrong = {
        code: (what, levels, mend)
        for code, (_, what, levels, mend) in ROWS.items()
        if not (set(re.findall(r"\w+", levels)) & {"ok", "warn", "fail"} and what and mend)
    }

    assert wrong == {}
