from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results.load import find_run


def test_a_folder_an_id_and_neither(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    for name in ("abc123", "xyz789"):
        (outputs / name).mkdir(parents=True)
    (outputs / "file").touch()
    assert find_run("abc123", outputs) == find_run(str(outputs / "abc123"), Path("none")) == outputs / "abc123"
    for run, folder, message in (
        ("abc12", outputs, f"no run 'abc12': neither a run folder nor an id under {outputs}/. Did you mean 'abc123'?"),
        ("file", outputs, f"no run 'file': neither a run folder nor an id under {outputs}/. There are 2 runs there."),
        ("abc123", Path("x"), "no run 'abc123': neither a run folder nor an id under x/. There are 0 runs there."),
    ):
        with pytest.raises(UserError) as caught:
            find_run(run, folder)
        assert str(caught.value) == message
