"""The browser of the tests, and how it is started."""

from __future__ import annotations

import os
import shutil

# The browser without its windows takes half the time.
HEADLESS = "/usr/bin/chromium-headless-shell"
CHROMIUM = os.environ.get("PGROUSE_TEST_CHROMIUM") or shutil.which(HEADLESS) or shutil.which("chromium") or HEADLESS
NO_CHROMIUM = "there is no Chromium: apt-get install chromium-headless-shell, or name one by PGROUSE_TEST_CHROMIUM"
# No graphics card, no requests to other sites; as root it can have no sandbox.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
