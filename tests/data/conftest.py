"""Data sets small enough to be prepared in every test, and folders that no other variable reaches into."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ntl.data.dataset import TextDataset, dataset_named
from ntl.data.prepared import Prepared
from ntl.data.sets.noisy_numbers import NoisyNumbers

Release = Callable[..., None]


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder; NTL_DATA_DIR is not set."""
    monkeypatch.delenv("NTL_DATA_DIR", raising=False)
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def small(data_dir: Path) -> Prepared:
    """noisy_numbers with 30 + 10 + 20 rows, not prepared yet, in ``data_dir``."""
    return Prepared(NoisyNumbers(train_rows=30, validation_rows=10, test_rows=20), data_dir)


@pytest.fixture
def own(tmp_path: Path, data_dir: Path) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """``own(rows, **settings)``: the splits that ``dataset=file`` prepares of these rows of JSON lines."""

    def prepare(rows: list[Any], **values: Any) -> dict[str, list[dict[str, Any]]]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        prepared = Prepared(dataset_named("file", data_dir, path=str(path), **values), data_dir)
        prepared.prepare()
        return {split: [*prepared.rows(split)] for split in ("train", "validation", "test")}  # pyright: ignore

    return prepare


@pytest.fixture
def release(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Puts made-up files of an official release under ``data_dir``: ``release(RJokes, test=b"...", ...)``.

    Their sha256 counts as the published one, and nothing can be downloaded.
    """

    def place(kind: type[TextDataset], **contents: bytes) -> None:
        assert kind.origin is not None
        files = {}
        for split, file in kind.origin.files.items():
            digest = file.sha256
            if split in contents:
                path = data_dir / file.path
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(contents[split])
                digest = digest and hashlib.sha256(contents[split]).hexdigest()
            files[split] = replace(file, url=f"http://127.0.0.1:9/{file.path}", sha256=digest)
        monkeypatch.setattr(kind, "origin", replace(kind.origin, files=files))

    return place
