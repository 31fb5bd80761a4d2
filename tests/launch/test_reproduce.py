from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntl.launch import reproduce


@pytest.mark.parametrize("code", [0, 1])
def test_published_records_count(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls: list[Any] = []

    def fake(*names: str, **options: Any) -> SimpleNamespace:
        calls.append((names, options))
        return SimpleNamespace(exit_code=code)

    monkeypatch.setattr(reproduce, "complete_table", fake)
    assert reproduce.main(["--table", "table2", "--scale", "small"]) == code
    outputs = Path("outputs")
    options = {"records": [Path("results/runs"), outputs], "outputs": outputs, "workers": None}
    assert calls == [(("table2", "small"), options)]
