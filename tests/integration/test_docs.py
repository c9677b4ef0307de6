"""The docs are correct: blocks run, links lead somewhere, references are complete, the prose is plain."""

from __future__ import annotations

import ast
import importlib
import io
import os
import re
import signal
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from programs.paths import ROOT

from duramen.api.settings import Settings
from duramen.cli.app import app

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
OBJECT = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def all_pages() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", PAGES, ids=name_of)


# -- code blocks


def python_blocks() -> Iterator[Any]:
    """Each Python block, with the files that the page has saved before it."""
    for page in PAGES:
        files: dict[str, str] = {}
        blocks = [(title, block) for kind, title, block in FENCE.findall(text_of(page)) if kind == "python"]
        for number, (title, block) in enumerate(blocks, 1):
            yield pytest.param(block, dict(files), id=f"{name_of(page)}-{number}")
            if title:
                files[title] = block


@pytest.mark.parametrize(("block", "files"), list(python_blocks()))
def test_a_block_runs_twice_in_the_same_folder(block: str, files: dict[str, str], tmp_path: Path) -> None:
    for file, content in files.items():
        (tmp_path / file).write_text(content, encoding="utf-8")
    (tmp_path / "block.py").write_text(block, encoding="utf-8")
    for attempt in (1, 2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        killed = attempt == 1 and "signal.SIGKILL" in block and done.returncode == -signal.SIGKILL
        assert killed or done.returncode == 0, f"attempt {attempt}: {done.stderr}"


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "quickstart.md"], ids=name_of)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "COLUMNS": "100"}
    for kind, title, block in FENCE.findall(text_of(page)):
        if title:
            (tmp_path / title).write_text(block, encoding="utf-8")
        for command, shown in commands(block) if kind == "console" else []:
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
            )
            printed = "".join(line for line in done.stdout.splitlines(True) if "Killed" not in line)
            assert (done.returncode == 0) is not shown.endswith("Killed\n"), f"{command}: {printed}"
            assert pattern(shown.removesuffix("Killed\n")).fullmatch(printed), f"{command}:\n{printed}"


def commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block that can be tried here, each with the output that is shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        if re.match(r"(python|cat|duramen (?!model)) ?", command):
            yield command, shown


def pattern(shown: str) -> re.Pattern[str]:
    """Numbers, ids and times differ; … stands for anything, alone on a line for any lines."""
    lines = []
    for line in shown.splitlines():
        words = [word_pattern(word) for word in line.split()]
        lines.append("(?:.*\n)*" if words == [".*"] else r"[^\S\n]*" + r"[^\S\n]+".join(words) + r"[^\S\n]*\n")
    return re.compile("".join(lines).replace(r"[^\S\n]+.*", ".*"))


def word_pattern(word: str) -> str:
    if word in ("µs", "ms", "s"):
        return "(?:µs|ms|s)"
    if re.fullmatch(r"(?=\D*\d)[a-z0-9]{10,}", word):
        return r"\w+"
    return re.sub(r"(?:\d[\d.:-]*)?\d", r"[\\d.:-]+", re.escape(word).replace("…", ".*").replace(r"\-", "-"))


# -- links


@all_pages()
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(CODE.sub("", text_of(page))):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found) or is_documented(anchor, found), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    headings = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in HEADING.findall(text_of(page)))
    return {re.sub(r"[-\s]+", "-", heading) for heading in headings}


def is_documented(name: str, page: Path) -> bool:
    """Whether an anchor such as duramen.Duramen.run is an object that the page documents."""
    return any(name == known or name.startswith(f"{known}.") for known in OBJECT.findall(text_of(page))) and exists(
        name
    )


def exists(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)  # type: ignore[assignment]
        return found is not None
    return False


def test_navigation_lists_every_page_once() -> None:
    def listed(nav: Any) -> Iterator[str]:
        for item in nav:
            value = item if isinstance(item, str) else next(iter(item.values()))
            yield from [value] if isinstance(value, str) else listed(value)

    nav = yaml.safe_load(text_of(ROOT / "mkdocs.yml"))["nav"]
    assert sorted(listed(nav)) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


# -- references


def reference() -> dict[str, str]:
    """Each object that the reference documents, with its page."""
    return {name: page.name for page in (DOCS / "reference").glob("*.md") for name in OBJECT.findall(text_of(page))}


def test_every_public_name_is_documented() -> None:
    import duramen

    documented = reference()
    missing = [name for name in duramen.__all__ if f"duramen.{name}" not in documented]
    assert [name for name in missing if getattr(duramen, name).__module__ not in documented] == []


def test_every_documented_name_exists() -> None:
    assert [name for name in reference() if not exists(name)] == []


def test_settings_are_listed_exactly() -> None:
    page = text_of(DOCS / "reference" / "settings.md")
    table = page[page.index("| name |") :].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == sorted(Settings.__annotations__)


def test_settings_name_every_environment_variable() -> None:
    used = {name for path in (ROOT / "src").rglob("*.py") for name in re.findall(r"DURAMEN_[A-Z_]+", text_of(path))}
    page = text_of(DOCS / "reference" / "settings.md")
    assert sorted(name for name in used - {"DURAMEN_CRASH_AT"} if f"`{name}" not in page) == []


def test_every_command_and_option_is_documented() -> None:
    page = text_of(DOCS / "reference" / "cli.md")
    sections = {part.partition("\n")[0]: part for part in re.split(r"^##+ ", page, flags=re.MULTILINE)}
    shared = sections["Shared options"]
    missing = []
    for path, command in leaf_commands(typer.main.get_command(app)):
        section = sections.get(path, "")
        for option in [name for parameter in command.params for name in parameter.opts if name.startswith("-")]:
            if f"`{option}`" not in section and option not in ("--store", "-s", "--workspace", "-w", "-n"):
                missing.append(f"{path} {option}")
        if f"`duramen {path}" not in section:
            missing.append(path)
    assert missing == []
    assert all(
        f"`{option}`" in shared for option in ("--store", "-s", "--workspace", "-w", "-n", "--help", "--version")
    )


def leaf_commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaf_commands(below, f"{path} {name}".strip())


def test_the_table_of_counts_is_the_measured_one() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "token_corpus.py")]
    done = subprocess.run(tool, capture_output=True, text=True, check=True)
    pages = "\n".join(map(text_of, PAGES))
    assert [row for row in done.stdout.splitlines()[2:] if row not in pages] == []


# -- prose

MAX_LINE = 100
OLD_WORDS = [
    *("all the same", "anew", "as ever", "at hand", "beside", "by and by", "comes back", "for good", "found out"),
    *("gone over", "hence", "let go", "of its own accord", "somebody", "taken for", "thereby", "told", "whence"),
    *("whoever", r"(?<!there )is no \w+ of"),
]


@all_pages()
def test_lines_are_short(page: Path) -> None:
    rows = page == DOCS / "promises.md"  # its tables are read by a tool
    long = [line for line in text_of(page).splitlines() if len(line) > MAX_LINE and not (rows and line[:1] == "|")]
    assert long == []


def test_prose_has_no_old_words() -> None:
    old = re.compile(rf"\b({'|'.join(OLD_WORDS)})\b", re.IGNORECASE)
    assert [f"{place}: {line.strip()}" for place, prose in all_prose() for line in prose if old.search(line)] == []


def all_prose() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        yield name_of(page), CODE.sub("", text_of(page)).splitlines()
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield name_of(path), [line for text in python_prose(text_of(path)) for line in CODE.sub("", text).splitlines()]


def python_prose(source: str) -> Iterator[str]:
    """Docstrings and comments. Other strings are data: rules of extraction quote what people say."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
