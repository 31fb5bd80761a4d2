"""Dotted names become objects of this project; foreign code never runs, and no name is a path out of its folder."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from ntl.config import UserError
from ntl.config.composition import read_config, schemas
from ntl.config.settings import about
from ntl.config.targets import locate
from ntl.config.validation import validate
from ntl.results.spec import load_table_spec

EXTRA = "extra_decodings.expectation."
# What reads the file config.yaml of a folder.
READERS = [read_config, lambda folder: load_table_spec(str(folder / "config.yaml"))]


# Setting -> the package that must define what it names.
ROOMS = {
    "model._target_": "ntl.models",
    "dataset._target_": "ntl.data",
    "objective._target_": "ntl.objectives",
    "objective.collator": "ntl.data",
    "decoding._target_": "ntl.decoding",
    f"{EXTRA}_target_": "ntl.decoding",
}


def test_every_schema_that_names_code_has_a_room() -> None:
    assert "dataset/file" in schemas()
    for path, schema in schemas().items():
        if hasattr(schema, "_target_"):
            assert about(schema)["_target_"]["room"] == ROOMS[f"{path.split('/')[0]}._target_"]


def _set(config: Any, path: str, value: object) -> None:
    parent, _, key = path.rpartition(".")
    for name in parent.split("."):
        config = config[name] if isinstance(config, dict) else getattr(config, name)
    setattr(config, key, value)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        *((path, "os.system") for path in ROOMS),
        *(("model._target_", target) for target in ("ntl.modelsx.f", "")),
    ],
)
def test_a_target_outside_its_room_is_refused(path: str, target: str, composed, tmp_path: Path) -> None:
    config = composed("extra_decodings=expectation", "dataset=noisy_numbers")
    _set(config, path, target)
    message = rf"^{path}={target}: not in {ROOMS[path]}, and code from elsewhere is never called; put it there\.$"
    with pytest.raises(UserError, match=message):
        validate(config)
    OmegaConf.save(OmegaConf.structured(config), tmp_path / "config.yaml")
    # A schema that has other keys than the target's is not found in the first place.
    with pytest.raises(UserError, match=rf"{message}|not in '\w+'; written by another version"):
        read_config(tmp_path)


NAMES = {"model.name": ["../x", "a/b", ".x", "", "a\nb"], "dataset.name": [""], f"{EXTRA}name": [""]}


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in NAMES.items() for name in names])
def test_a_name_is_never_a_path(path: str, name: str, composed) -> None:
    config = composed("extra_decodings=expectation", "dataset=noisy_numbers")
    _set(config, path, name)
    with pytest.raises(UserError, match="not a plain name of letters, digits") as caught:
        validate(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tracking: {group: '${oc.env:PLANTED}'}", r"it has an interpolation, \$\{\.\.\.\}, which is not resolved"),
        ("a: *b", "found undefined alias 'b'"),
        ("model: !!python/object/apply:pathlib.Path.touch [made]", "could not determine a constructor"),
    ],
)
def test_a_file_that_means_more_than_values_is_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED", "a secret")
    (tmp_path / "config.yaml").write_text(text)
    for read in READERS:
        with pytest.raises(UserError, match=rf"config\.yaml: {message}") as caught:
            read(tmp_path)
        assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


NOT_OURS = r"no class or function that ntl defines|cannot be imported"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ntl.losses.no_such", "cannot be imported"),
        # Not even imported.
        *((target, "not in ntl, and code from elsewhere") for target in ("os.system", "ntlx.losses.ce")),
        # What a module of this project imports, or what its objects have, is not part of it.
        ("ntl.training.train.subprocess.run", NOT_OURS),
        ("ntl.losses.ntl_was.__globals__", NOT_OURS),
        ("ntl.losses.rows", NOT_OURS),
        ("ntl.config.targets.NAME.fullmatch", NOT_OURS),
    ],
)
def test_what_cannot_be_located(target: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        locate(target)
