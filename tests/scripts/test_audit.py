"""Licences from any of the three places of a package's metadata, and what pip-audit's answers come to."""

import json
import runpy
import subprocess
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

AUDIT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "audit.py"))


def package(name: str, *fields: tuple[str, str]) -> Any:
    metadata = Message()
    for key, value in fields:
        metadata[key] = value
    return SimpleNamespace(name=name, version="1.0", metadata=metadata)


OSI = ("Classifier", "License :: OSI Approved")


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT OR Apache-2.0"), ("License", "x")], "MIT OR Apache-2.0"),
        ([OSI, ("Classifier", f"{OSI[1]} :: BSD License"), ("License", "text\nof it")], "BSD License"),
        ([OSI, ("License", "Apache 2\nand so on")], "Apache 2"),
        ([], "unknown"),
    ],
)
def test_a_licence(fields: list[tuple[str, str]], licence: str) -> None:
    assert AUDIT["licence_of"](package("a", *fields)) == licence


FOUND = {
    "name": "a",
    "version": "1",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}, {"id": "X", "fix_versions": []}],
}
CLEAN = {"name": "b", "version": "1", "vulns": []}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found"}
NOT_CHECKED = "Vulnerabilities: NOT CHECKED, the service has no answer"


@pytest.mark.parametrize(
    ("packages", "code", "last"),
    [
        ([FOUND, CLEAN], 1, "2 known vulnerabilities in 2 packages that were checked."),
        ([CLEAN, SKIPPED], 0, "0 known vulnerabilities in 1 packages that were checked; not all could be: Dependency"),
        (None, 0, f"{NOT_CHECKED} (ConnectionError: no route)."),
    ],
)
def test_what_pip_audit_says(
    packages: Any, code: int, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
    answer = SimpleNamespace(stdout=report, stderr="Traceback\nConnectionError: no route\n")
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: answer)
    assert AUDIT["main"]() == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(last)
    assert ("a 1: PYSEC-1, mended in 2" in lines) == (code == 1)
    # The licences are listed whatever the service says.
    assert any(line.startswith("torch ") for line in lines)
