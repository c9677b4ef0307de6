"""Whether what is compiled could be compiled here."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

HAS_COMPILER = bool(shutil.which("cc")) and Path(sysconfig.get_path("include"), "Python.h").exists()
