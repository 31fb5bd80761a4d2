from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntl.launch import quickstart


@pytest.mark.parametrize("code", [0, 1])
def test_only_runs_made_here_count(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls: list[Any] = []

    def fake(*names: Any, **options: Any) -> SimpleNamespace:
        calls.append((names, options))
        return SimpleNamespace(exit_code=code)

    monkeypatch.setattr(quickstart, "complete_tables", fake)
    assert quickstart.main(["--outputs", "here", "--workers", "3"]) == code
    here = Path("here")
    assert calls == [((["quickstart"], "tiny"), {"records": [here], "outputs": here, "workers": 3})]
