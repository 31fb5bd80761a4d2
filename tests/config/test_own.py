"""A config folder of one's own: what its command line may call, what nothing else may, and an edited module."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ntl.config import UserError, compose, own, run_id, targets
from ntl.config.composition import read_config, register, schemas
from ntl.config.data import added_schema
from ntl.config.folders import choices, own_folders
from ntl.config.identity import recorded
from ntl.config.targets import locate
from ntl.data import sets

LOSS = "def f(*given, **options):\n    return helper.ZERO\n"
FILES = {
    "my_loss.py": f"import helper\n{LOSS}",
    "helper.py": "ZERO = 0.0\n",
    "my_data.py": (
        "from dataclasses import dataclass\nfrom ntl.config import DatasetConfig\n\n"
        "@dataclass\nclass MineConfig(DatasetConfig):\n"
        "    _target_: str = 'my_data.Mine'\n    name: str = 'mine'\n    rows: int = 3\n\n"
        "class Mine:\n    def __init__(self, config):\n        self.config = config\n"
    ),
    "conf/loss/mine.yaml": (
        "defaults:\n  - /schema/loss/base@_here_\nname: mine\nnumber:\n  _target_: my_loss.f\n"
        "weight: ${oc.decode:'0.5'}\n"
    ),
    "conf/dataset/mine.yaml": "defaults:\n  - /schema/dataset/mine@_here_\n_target_: my_data.Mine\n",
}
WORDS = ["dataset=noisy_numbers", "loss=mine"]


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A working directory with ``FILES``; called, it forgets all of them, as a new process would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def forget() -> None:
        own_folders.clear()
        targets.own.clear()
        for cached in (own.digests, schemas, register):
            cached.cache_clear()
        for name in ("my_loss", "helper", "my_data"):
            sys.modules.pop(name, None)

    forget()
    yield forget
    forget()
    register()


def test_a_folder_adds_choices_that_name_code_of_the_working_directory(fresh: Callable[[], None]) -> None:
    own.use(["conf"])
    assert {"mine", "ntl_was"} <= {*choices("loss")}
    config = compose([*WORDS])
    assert (config.loss.weight, locate("my_loss.f")()) == (0.5, 0.0)
    assert type(compose(["dataset=mine", "loss=ce", "dataset.rows=4"]).dataset).__name__ == "MineConfig"
    with pytest.raises(UserError, match=r"not in ntl\.losses"):  # what no file of the folder names
        compose([*WORDS, "loss.number._target_=my_loss.helper"])
    with pytest.raises(UserError, match=r"not in ntl\.losses"):
        compose([*WORDS, "loss.number._target_=os.system"])


@pytest.mark.parametrize("file", ["my_loss.py", "helper.py"])
def test_an_edited_module_is_another_run(file: str, fresh: Callable[[], None], tmp_path: Path) -> None:
    own.use(["conf"])
    before, ce = compose(WORDS), run_id(compose(["dataset=noisy_numbers", "loss=ce"]))
    first = run_id(before)
    assert {*recorded(before)["code"]["loss"]} == {"my_loss.py", "helper.py"}
    (tmp_path / file).write_text(f"{FILES[file]}# edited\n")
    assert run_id(before) == first  # what this process has read, and calls
    fresh()
    own.use(["conf"])
    assert run_id(compose(WORDS)) != first
    assert run_id(compose(["dataset=noisy_numbers", "loss=ce"])) == ce
    assert own.changed(recorded(before)["code"], compose(WORDS), ["loss"]) == []
    assert own.changed({"loss": {file: "0" * 64}}, compose(WORDS), ["loss"]) == ["helper.py", "my_loss.py"]


def test_what_is_read_back_needs_the_folder_again(fresh: Callable[[], None], tmp_path: Path) -> None:
    """A run, a checkpoint's config or a table that names the module calls nothing, and does not even import it."""
    own.use(["conf"])
    (tmp_path / "run").mkdir()
    OmegaConf.save(OmegaConf.structured(compose(WORDS)), tmp_path / "run" / "config.yaml")
    assert read_config(tmp_path / "run").loss.name == "mine"
    fresh()
    message = r"^loss\.number\._target_=my_loss\.f: not in ntl\.losses, and code .* by --config-dir\.$"
    with pytest.raises(UserError, match=message):
        read_config(tmp_path / "run")
    with pytest.raises(UserError, match=message):
        compose(["dataset=noisy_numbers", "loss=ntl_was", "loss.number._target_=my_loss.f"])
    with pytest.raises(UserError, match="not in ntl"):
        locate("my_loss.f")
    assert "my_loss" not in sys.modules


YAML = "conf/loss/other.yaml"
MISTAKES = {
    "no folder": ({}, "nowhere", "no YAML file in a folder named like a setting"),
    "no group": ({"b/losses/x.yaml": "name: x"}, "b", "no YAML file in a folder named like a setting: model/, "),
    "a name of ntl's": ({"conf/loss/ce.yaml": "name: ce"}, "conf", r"ce\.yaml: loss=ce exists already"),
    "a recipe of ntl's": ({"conf/scale/recipe/tiny_gsm8k.yaml": ""}, "conf", "scale/recipe=tiny_gsm8k exists already"),
    "no YAML": ({YAML: "a: [1"}, "conf", r"other\.yaml: .*expected ',' or '\]'"),
    "no module": ({YAML: "_target_: nothing.f"}, "conf", r"nothing\.f: there is no nothing\.py in .*, the working"),
    "a path": ({YAML: "_target_: ../x.f"}, "conf", r"\.\./x\.f: there is no "),
    "a library": ({YAML: "_target_: os.system"}, "conf", r"os\.system: there is no os\.py in "),
    "a library's name": ({YAML: "_target_: json.dumps", "json.py": ""}, "conf", r"json is /.*, not in .*another name"),
    "no package": ({YAML: "_target_: pack.a.f", "pack/a.py": ""}, "conf", r"pack has no __init__\.py"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str, fresh: Callable[[], None], tmp_path: Path) -> None:
    files, folder, message = MISTAKES[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        own.use([folder])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("code", "message"), [("f = 1", "no class or function"), ("1/0", "ZeroDivisionError: div")])
def test_a_module_that_does_not_work_is_one_line(
    code: str, message: str, fresh: Callable[[], None], tmp_path: Path
) -> None:
    (tmp_path / "my_loss.py").write_text(code)
    own.use(["conf"])
    with pytest.raises(UserError, match=rf"'my_loss\.f' of .*mine\.yaml.*{message}"):
        locate("my_loss.f")


@pytest.mark.parametrize("words", [["--config-dir", "conf"], ["--config-dir=conf"]], ids=" ".join)
def test_the_option_is_taken_from_any_place(words: list[str], fresh: Callable[[], None], tmp_path: Path) -> None:
    line = ["ntl train", "seed=1", *words, "-m"]
    own.take_option(line)
    assert (line, own_folders) == (["ntl train", "seed=1", "-m"], [tmp_path / "conf"])
    with pytest.raises(UserError, match=r"^--config-dir: name a folder\.$"):
        own.take_option(["ntl train", "--config-dir"])


def test_imports_are_followed_within_the_working_directory(fresh: Callable[[], None], tmp_path: Path) -> None:
    (tmp_path / "pack" / "sub").mkdir(parents=True)
    code = {
        "pack/__init__.py": "",
        "pack/a.py": "from . import b\nfrom .sub.c import x\nimport os, torch\n",
        "pack/b.py": "import pack.a\n",
        "pack/sub/__init__.py": "",
        "pack/sub/c.py": "from ..d import y\nx = 1\n",
        "pack/d.py": "y = 1\n",
        "pack/unused.py": "",
    }
    for path, text in code.items():
        (tmp_path / path).write_text(text)
    assert {*own.digests("pack.a.f")} == {*code} - {"pack/unused.py"}


@pytest.mark.parametrize(
    ("code", "why"),
    [("x = = 1", r"SyntaxError: .*line 1"), ("import nowhere", "ModuleNotFoundError: .*'nowhere'"), ("1/0", "ZeroDiv")],
)
def test_the_file_of_an_added_data_set_that_does_not_work_is_one_line(
    code: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.setattr(sets, "__path__", [*sets.__path__, str(tmp_path)])
    with pytest.raises(
        UserError, match=rf"^dataset=broken: ntl\.data\.sets\.broken cannot be imported: {why}.*; correct"
    ):
        added_schema("broken")
