"""docs/tokenizers.md: every block runs, and every table is what it prints.

``python -P tests/test_docs_tokenizers.py``, with the folder of data files in NTL_DATA_DIR, writes the tables anew.
"""

import contextlib
import io
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tokenizers.md"
# A block, and what it prints, if the page shows that.
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?P<start>\n<!-- printed -->\n)?(?(start)(?P<text>.*?)^<!-- end of printed -->$)",
    re.M | re.S,
)
# The published files lie under these names in the folder of data files.
LOCAL = {"openai-community/gpt2": "gpt2", "google-t5/t5-small": "t5"}


def filled(page: str, files: Path) -> tuple[str, dict[str, Any]]:
    """The page with everything that its blocks print, and the names that they define."""
    names: dict[str, Any] = {}

    def run(match: re.Match[str]) -> str:
        code, printed = match["code"], io.StringIO()
        for hub_id, name in LOCAL.items():
            code = code.replace(f'"{hub_id}"', repr(str(files / "tokenizers" / name)))
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            exec(compile(code, str(PAGE), "exec"), names)
        text = printed.getvalue()
        assert bool(text) == bool(match["start"]), f"printed, but not shown, or the reverse: {match['code'][:80]}"
        if not match["start"]:
            return match[0]
        shown = f"\n{text}\n" if text.startswith("|") else f"\n```text\n{text}```\n\n"
        return f"```python\n{match['code']}```\n{match['start']}{shown}<!-- end of printed -->"

    return BLOCK.sub(run, page), names


@pytest.mark.slow
@pytest.mark.data
def test_every_table_is_what_its_block_prints(data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    found, names = filled(page, data_root)
    names["folder"].cleanup()
    assert found == page


if __name__ == "__main__":
    import tempfile

    data = Path(os.environ["NTL_DATA_DIR"]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), data)[0], encoding="utf-8")
