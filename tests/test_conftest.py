"""A test marked data that is skipped must not look like one that passed where the data is required."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
TESTS = """
import pytest

@pytest.mark.data
def test_on_data(data_root):
    assert data_root.is_dir()

@pytest.mark.data
def test_on_a_file_that_is_not_there(data_root):
    pytest.skip("no such file")

def test_skipped_for_another_reason():
    pytest.skip("no GPU")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "summary"),
    [
        ({"NTL_REQUIRE_DATA": "1"}, "1 skipped, 2 errors"),
        ({"NTL_DATA_DIR": ".", "NTL_REQUIRE_DATA": "1"}, "1 failed, 1 passed, 1 skipped"),
    ],
)
def test_skips_of_data_tests(tmp_path: Path, environment: dict[str, str], summary: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    data: reads files\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NTL_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**clean, **environment}, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1].startswith(f"{summary} in "), done.stdout
