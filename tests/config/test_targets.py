"""Dotted names become objects of this project; foreign code never runs, and no name is a path out of its folder."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from ntl.config import UserError, build, cli, compose
from ntl.config.composition import SCHEMAS
from ntl.config.legality import validate
from ntl.config.stored import read_config
from ntl.config.targets import ROOMS, check_name, locate
from ntl.results.figures.spec import load_figure_spec
from ntl.results.spec import load_table_spec

BESIDE = "beside.expectation."


def test_every_schema_that_names_code_has_a_room() -> None:
    named = {path.split("/")[0] for path, schema in SCHEMAS.items() if hasattr(schema, "_target_")}
    assert {f"{group}._target_" for group in named} < set(ROOMS)


def _set(config: Any, path: str, value: object) -> None:
    parent, _, key = path.rpartition(".")
    for name in parent.split("."):
        config = config[name] if isinstance(config, dict) else getattr(config, name)
    setattr(config, key, value)


@pytest.mark.parametrize("path", [*ROOMS, f"{BESIDE}_target_"])
@pytest.mark.parametrize("target", ["os.system", "ntl.system.files.write_text", "ntl.lossesx.f", "ntl.losses", ""])
def test_a_target_outside_its_room_is_refused(path: str, target: str, composed, tmp_path: Path) -> None:
    config = composed("loss=ntl_was_squashed", "beside=expectation", "dataset=noisy_numbers")
    _set(config, path, target)
    shown = path.replace(BESIDE, "decoding.")
    message = rf"^{shown}={target}: not in {ROOMS[shown]}, and code from elsewhere is never called; put it there\.$"
    with pytest.raises(UserError, match=message):
        validate(config)
    OmegaConf.save(OmegaConf.structured(config), tmp_path / "config.yaml")
    # A schema that has other keys than the target's is not found in the first place.
    with pytest.raises(UserError, match=rf"{message}|not in '\w+'; written by another version"):
        read_config(tmp_path)


def test_on_a_command_line_too() -> None:
    with pytest.raises(UserError, match=r"not in ntl\.losses"):
        compose(["loss.number._target_=subprocess.run"])


NAMES = ["../x", "/x", "a/b", "..", ".x", "", "a\nb", "a b", "x\0"]


@pytest.mark.parametrize("path", ["model.name", "dataset.name", "loss.name", "decoding.name", f"{BESIDE}name"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_never_a_path(path: str, name: str, composed) -> None:
    config = composed("beside=expectation", "dataset=noisy_numbers")
    _set(config, path, name)
    with pytest.raises(UserError, match="not a plain name of letters, digits") as caught:
        validate(config)
    assert "\n" not in str(caught.value)


def test_the_key_of_a_reading_is_a_name(composed) -> None:
    config = composed("beside=expectation", "dataset=noisy_numbers")
    config.beside["../x"] = config.beside["expectation"]
    with pytest.raises(UserError, match=r"^beside='\.\./x': not a plain name"):
        validate(config)


@pytest.mark.parametrize("name", ["checkpoint-500", "gpt2_tiny", "a+b=c.1", "noisy_numbers-ce-s1-0123456789ab"])
def test_plain_names(name: str) -> None:
    assert check_name(name, "id") == name


def test_what_is_read_back_resolves_nothing(composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "a secret")
    config = composed()
    config.tracking.group = "${oc.env:PLANTED}"
    OmegaConf.save(OmegaConf.structured(config), tmp_path / "config.yaml")
    for read in (lambda: read_config(tmp_path), lambda: load_table_spec("config", tmp_path)):
        with pytest.raises(UserError, match=r"config\.yaml: it has an interpolation, \$\{\.\.\.\}, which"):
            read()


def test_a_tag_of_yaml_makes_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    (tmp_path / "config.yaml").write_text(f"model: !!python/object/apply:pathlib.Path.touch [{marker}]\n")
    for read in (lambda: read_config(tmp_path), lambda: load_table_spec("config", tmp_path)):
        with pytest.raises(UserError, match=r"config\.yaml: could not determine a constructor") as caught:
            read()
        assert "\n" not in str(caught.value)
    assert not marker.exists()


LAUGHS = "\n".join([f"a0: &a0 [{'x, ' * 9}]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 10))])
MERGED = "\n".join(["a0: &a0 {k: 1}", *(f"a{n}: &a{n} {{<<: [{f'*a{n - 1}, ' * 9}]}}" for n in range(1, 10))])


UNFOLDS = r"config\.yaml: its aliases \(\*name\) unfold to more than 100,000 values; write out what is meant\.$"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUGHS, UNFOLDS),
        (MERGED, UNFOLDS),
        (
            "a: &a [*a]",
            UNFOLDS,
        ),
        (
            "a: " + "[" * 3000 + "]" * 3000,
            r"config\.yaml: lists or mappings are nested too deeply to be read; write it flatter$",
        ),
        ("a: *b", r"config\.yaml: found undefined alias 'b'"),
    ],
    ids=["lists", "merges", "itself", "deep", "nothing"],
)
@pytest.mark.timeout(60)  # unfolded, they would take hours
def test_a_small_file_that_means_a_large_one_is_one_line_at_once(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    for read in (read_config, partial(load_table_spec, "config"), partial(load_figure_spec, "config")):
        with pytest.raises(UserError, match=message) as caught:
            read(tmp_path)
        assert "\n" not in str(caught.value)


def test_aliases_that_mean_little_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(
        "title: &t a * b\ncaption: *t\ndraw: ntl.results.figures.losses.draw\nfiles: {a: b}\n"
    )
    assert load_figure_spec("x", tmp_path).caption == "a * b"


def test_a_figure_is_drawn_by_our_functions(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("title: x\ncaption: x\ndraw: os.system\nfiles: {a: b}\n")
    with pytest.raises(UserError, match=r"x\.yaml: draw=os\.system: not in ntl\.results\.figures"):
        load_figure_spec("x", tmp_path)


def test_locate() -> None:
    from ntl.losses import ntl_was

    assert locate("ntl.losses.ntl_was") is locate("ntl.losses.wasserstein.ntl_was") is ntl_was


@dataclass
class Wanted:
    _target_: str = "ntl.config.cli.one_line"


def test_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_line(config: object, extra: int) -> tuple[object, int]:
        return config, extra

    one_line.__module__ = cli.__name__
    monkeypatch.setattr(cli, "one_line", one_line, raising=False)
    assert build(Wanted(), extra=2) == (Wanted(), 2)


@pytest.mark.parametrize("target", ["ntl.losses.no_such", "ntl.no_such_package.x", "ntl..losses"])
def test_a_wrong_path_is_named(target: str) -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        locate(target)


@pytest.mark.parametrize("target", ["os.system", "fractions.Fraction", "ntlx.losses.ce", "ntl", ""])
def test_what_lies_elsewhere_is_not_even_imported(target: str) -> None:
    with pytest.raises(UserError, match=r"not in ntl, and code from elsewhere is never called"):
        locate(target)


@pytest.mark.parametrize(
    "target",
    [
        "ntl.system.machine.subprocess.run",
        "ntl.system.machine.os.system",
        "ntl.losses.rows.torch.load",
        "ntl.losses.ntl_was.__globals__",
        "ntl.losses.ntl_was.__class__",
        "ntl.losses.rows",
        "ntl.config.targets.NAME.fullmatch",
    ],
)
def test_what_a_module_of_ours_imports_is_not_ours(target: str) -> None:
    with pytest.raises(UserError, match=r"no class or function that ntl defines|cannot be imported"):
        locate(target)
