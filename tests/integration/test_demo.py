"""`make demo` shows one booking and one mail, reports success by its exit code, and leaves no process behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs.paths import ROOT

EXAMPLES = ROOT / "examples"
TIMEOUT = 60
Demo = subprocess.Popen[str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path], Demo]]:
    """Starts a demo with a separate folder for temporary files."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    env |= {"TMPDIR": str(temporary), "PYTHONUTF8": "1", "COLUMNS": "100"}
    started: list[Demo] = []

    def start(examples: Path) -> Demo:
        command = [sys.executable, str(examples / "demo.py")]
        demo = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(demo)
        return demo

    yield start
    for demo in started:
        demo.kill()
        with demo:
            demo.wait()


def finish(demo: Demo) -> tuple[str, str]:
    """Its output and errors. Its children share its stderr, so all of them have ended when it returns."""
    return demo.communicate(timeout=TIMEOUT)


def row(name: str, printed: str) -> tuple[int, ...]:
    """The bookings and mails in a row of the final table."""
    found = re.findall(rf"^\W*{name}\W+(\d+)\W+(\d+)\W*$", printed, re.MULTILINE)
    assert len(found) == 1, printed
    return tuple(map(int, found[0]))


@pytest.mark.promise("X8")
def test_the_demo_ends_with_one_booking_and_one_mail(start: Callable[[Path], Demo], tmp_path: Path) -> None:
    demo = start(EXAMPLES)
    printed, errors = finish(demo)
    assert demo.returncode == 0, printed + errors
    assert errors == ""
    assert row("duramen", printed) == (1, 1)
    assert row("checkpoint after", printed) == (2, 2)
    assert printed.count("killed with SIGKILL") == 4
    for step in ("book#1", "send_mail#1"):
        doubt, settled = printed.index(f"{step} has an intent and no outcome"), printed.index(f"{step}: its check")
        assert doubt < settled
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.promise("X8")
def test_without_its_check_the_mail_is_sent_twice_and_the_demo_fails(
    start: Callable[[Path], Demo], tmp_path: Path
) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(EXAMPLES, examples)
    agent = examples / "trip_agent.py"
    script = agent.read_text(encoding="utf-8")
    assert script.count("@duramen.step(check=find_mail)") == 1
    agent.write_text(script.replace("@duramen.step(check=find_mail)", "@duramen.step"), encoding="utf-8")
    demo = start(examples)
    printed, errors = finish(demo)
    assert row("duramen", printed) == (1, 2), errors
    assert demo.returncode == 1
    assert "did something twice" in printed


@pytest.mark.promise("X8")
@pytest.mark.parametrize(
    ("sent", "output"),
    [
        (signal.SIGINT, "agent +starts"),
        (signal.SIGINT, "in doubt"),
        (signal.SIGINT, "checkpoint "),
        (signal.SIGTERM, "in doubt"),
        (signal.SIGHUP, "in doubt"),
        (signal.SIGKILL, "in doubt"),
    ],
)
def test_a_signal_ends_the_demo_and_all_its_processes(
    start: Callable[[Path], Demo], tmp_path: Path, sent: signal.Signals, output: str
) -> None:
    demo = start(EXAMPLES)
    assert demo.stdout is not None
    lines = iter(demo.stdout.readline, "")
    assert any(re.search(rf"\d s  {output}", line) for line in lines)
    demo.send_signal(sent)
    _, errors = finish(demo)
    if sent == signal.SIGKILL:
        assert demo.returncode == -signal.SIGKILL
    else:
        assert demo.returncode == 128 + sent
        assert "Traceback" not in errors
        assert list((tmp_path / "tmp").iterdir()) == []
