"""The house itself: what is built is what the folders hold, and no import goes around the names."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("events", "projections", "actors", "scripts")


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]


def folders() -> set[str]:
    """Every folder of the four rooms that holds Python, by its import name."""
    files = (file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
    return {".".join(("rewake", *file.parent.relative_to(ROOT).parts)) for file in files}


def complaints(source: str, beside: str) -> str:
    """What ruff says about a source, as if it stood in that folder."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise"]
    ran = subprocess.run(
        [*command, "--stdin-filename", f"{beside}/snippet.py", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return ran.stdout


def test_every_folder_with_python_is_built():
    assert set(settings()["setuptools"]["packages"]) == folders()


def test_every_folder_is_a_package():
    """A folder without `__init__.py` would be a namespace that anyone can add to."""
    assert [name for name in folders() if not ROOT.joinpath(*name.split(".")[1:], "__init__.py").is_file()] == []


def test_every_room_is_typed():
    assert [room for room in ROOMS if not (ROOT / room / "py.typed").is_file()] == []


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("beside", [*ROOMS, "tests"])
@pytest.mark.parametrize("form", ["import {}", "from {} import x", "from {}.deep import x", "def f():\n    import {}"])
def test_a_room_is_never_imported_by_its_bare_name(room: str, beside: str, form: str):
    assert "TID25" in complaints(form.format(room) + "\n", beside)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_imported_by_its_full_name(room: str):
    assert "TID25" not in complaints(f"from rewake.{room} import x\n", "tests")


def test_imports_are_absolute():
    assert "TID252" in complaints("from . import x\n", "events")
