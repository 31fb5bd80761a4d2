"""Every YAML file of every group composes, unknown keys are refused, and ``base=`` names another run."""

import json
import math
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf
from yaml import YAMLError

from ntl.config import UserError, compose, run_id
from ntl.config.cli import explain
from ntl.config.composition import base_words, quoted, read_config, schemas, to_config
from ntl.config.folders import CONFIG_DIR, GROUPS, choices, literal, own_folders, use
from ntl.config.identity import plain

help_text = runpy.run_path(str(CONFIG_DIR.parent / "train.py"))["help_text"]
CHOICES = [(group, name) for group in GROUPS for name in choices(group)]


# What tests/config/test_identity.py composes is not composed again.
STORED = {words.split()[0] for words in json.loads((Path(__file__).parent / "ids.json").read_text())}
OTHERS = [(group, name) for group, name in CHOICES if f"{group}={name}" not in STORED]


@pytest.mark.slow
@pytest.mark.parametrize(("group", "name"), OTHERS)
def test_every_other_choice_composes_and_names_itself(group: str, name: str, composed, words) -> None:
    config = composed(*words(group, name))
    if group == "extra_decodings":
        several = {"none": [], "points": ["expectation", "median"], "all": ["digit_median", "expectation", "median"]}
        assert sorted(config.extra_decodings) == several.get(name, [name])
    elif group not in ("trainer", "experiment", "hydra/launcher"):  # these have no name of their own
        called = {"hf": r"llama_0_\w{8}", "hf_regression": r"llama_0_\w{8}_regression"}.get(name, name)
        assert re.fullmatch(called, getattr(config, group).name)


def test_every_yaml_file_is_a_choice_of_a_known_group_and_names_itself() -> None:
    folders = {path.parent.relative_to(CONFIG_DIR).as_posix() for path in CONFIG_DIR.rglob("*.yaml")}
    assert folders - {".", "scale/recipe", "table", "figure"} == set(GROUPS)
    for group in ("model", "loss", "objective", "decoding"):
        for name in choices(group):
            text = (CONFIG_DIR / group / f"{name}.yaml").read_text()
            assert re.findall(r"^name: (\S+)", text, re.MULTILINE) in ([name], [])


def test_the_command_line_wins_over_scale_recipe_and_model() -> None:
    assert compose(["scale=paper"]).decoding.num_beams == 4
    config = compose(["trainer.max_steps=7", "dataset.train_rows=9"])
    assert (config.trainer.max_steps, config.dataset.train_rows) == (7, 9)  # pyright: ignore[reportAttributeAccessIssue]
    assert compose(["scale=paper", "decoding=greedy"]).decoding.num_beams == 1
    assert compose(["trainer.max_grad_norm=inf"]).trainer.max_grad_norm == math.inf  # the gradient as it is


def test_an_option_of_a_loss_may_be_added() -> None:
    assert compose(["loss=ntl_was_cdf", "+loss.options.sigma=3"]).loss.options == {"sigma": 3}


@pytest.mark.parametrize("word", ["loss=was", "loss=ntl_was", "loss.kind=was", "loss.kind=ntl_was"])
def test_a_kind_has_its_name_and_that_of_its_function(word: str, composed) -> None:
    assert composed(word) == composed("loss=ntl_was")
    assert (composed(word.replace("was", "mse")).loss.name, composed("loss=digit_ce").loss.name) == (
        "ntl_mse",
        "ce_digits",
    )
    assert composed("loss.kind=was+crps").loss.name == "was+crps"


TEXTS = ["ä.jsonl", "日本.jsonl", "Größe [m²]", "a&b", "a(1)", "a=b.csv", "it's", 'a"b', "a,b", " a b ", "a\\", "a\\'"]
TEXTS += ["#~!;<>^`", "[a]", "{a}", "null", "true", "1e5", "007", "1_000", "nan", "'a", "'", "😀", "$HOME", "a:b"]


@pytest.mark.parametrize("key", ["+dataset.question", "data_dir"])
def test_text_stands_for_itself(key: str) -> None:
    read = OverridesParser.create().parse_override
    assert [read(quoted(f"{key}={text}")).value() for text in TEXTS] == TEXTS
    swept: Any = read(quoted(f"{key}=ä,b,1e5", sweep=True)).sweep_iterator()
    assert [getattr(value, "text", value) for value in swept] == ["ä", "b", "1e5"]
    for word in (f"{key}='a'", f'{key}="a b"', f"{key}=", "loss.weight=1,2", "seed=1", "trainer.lr", "--cfg"):
        assert quoted(word) == word


TEMPLATES = ["Pay ${question}, or $5 {x!", "{question}\\", "it's {question}", 'a "{question}"', "\\${question} {}"]
TEMPLATES += ["{{ 日本 {question}}}"]


@pytest.mark.slow
def test_a_template_stands_for_itself_also_where_it_is_stored(tmp_path: Path) -> None:
    (tmp_path / "größe=1.jsonl").write_text('{"question": "q", "answer": "1"}\n')
    words = ["dataset=file", f"dataset.path={tmp_path}/größe=1.jsonl"]
    for template in TEMPLATES:
        config: Any = compose([*words, f"dataset.template={template}"])
        assert (config.dataset.template, config.dataset.asked) == (template, ["question"])
        OmegaConf.save(OmegaConf.create(literal(plain(config))), tmp_path / "config.yaml")
        stored: Any = read_config(tmp_path, ["decoding.num_beams=2", "data_dir=größe"])
        assert (stored.dataset, stored.decoding.num_beams, stored.data_dir) == (config.dataset, 2, "größe")


def test_another_file_is_another_data_set_for_a_stored_run(tmp_path: Path) -> None:
    mine, other, config = tmp_path / "mine.jsonl", tmp_path / "other.jsonl", tmp_path / "config.yaml"
    for path, answer in ((mine, 1), (other, 2)):
        path.write_text(json.dumps({"question": "q", "answer": answer}) + "\n")
    own: Any = compose(["dataset=file", f"dataset.path={mine}"])
    config.write_text(OmegaConf.to_yaml(OmegaConf.create(literal(plain(own)))))
    wanted: Any = compose(["dataset=file", f"dataset.path={other}"])
    found: Any = read_config(tmp_path, [f"dataset.path={other}"])
    assert found.dataset == wanted.dataset != own.dataset
    mine.write_text(other.read_text())  # what was not typed is what the run was trained on
    also: Any = read_config(tmp_path, [f"dataset.test_path={other}"])
    assert also.dataset.contents == own.dataset.contents | {"test_path": wanted.dataset.contents["path"]}
    with pytest.raises(UserError, match="exclude_numbers") as caught:
        read_config(tmp_path, ["dataset.exclude_numbers=("])
    assert "\n" not in str(caught.value)


def test_one_choice_is_meant() -> None:
    for word in ("loss=[ce,ntl_was]", "loss=ce,ntl_was", "+loss=[ce, ntl_was]"):
        with pytest.raises(UserError, match=r"name one choice; `python train.py -m loss=ce,ntl_was`"):
            compose([word])
    assert quoted("loss=ce,ntl_was", sweep=True) == "loss=ce,ntl_was"
    with pytest.raises(UserError, match="name one choice"):
        quoted("loss=[ce,ntl_was]", sweep=True)
    with pytest.raises(ConfigCompositionException, match="Ambiguous value for argument"):
        compose(["model=llama_tiny", "model.settings.hidden_size=1,2"])


def test_help_names_every_choice_and_four_commands() -> None:
    text = help_text()
    assert all(name in text.split() for _, name in CHOICES)
    shown = {line.split()[0] for line in text.splitlines() if re.match(r"  \S+ {2,}\S", line)}
    assert shown == set(GROUPS) >= {"trainer", "experiment", "hydra/launcher"}
    assert text.count("\n  python train.py") == 4


@pytest.mark.parametrize(
    "values",
    [
        "trainer.lr=1e-3 seed=7 trainer.max_steps=12 trainer.bf16=true trainer.best= paper_compat=true",
        "trainer.lr=2 trainer.lr=3 model.settings.hidden_size=32 output_dir=a/b objective.mask.fraction=.5",
        "device=cpu resume=never keep_steps=[5,7] output_dir='größe[1],it\\'s' tokenizer.path=owner/a-b",
        "objective.mask={fraction:0.25} data_dir=${output_dir}/b +model.settings.new=1 model.settings.new=2",
    ],
)
def test_values_are_set_as_hydra_sets_them(values: str) -> None:
    words = ["model=llama_tiny", "dataset=noisy_numbers", *values.split()]
    compose(words[:2])
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        raw = hydra_compose("train", overrides=words)
    assert compose(words) == to_config(raw, words)


def test_a_data_set_without_a_name_of_its_own_takes_no_other_s_place() -> None:
    known = schemas()["dataset/noisy_numbers"]

    @dataclass
    class Other(known):
        seed: int = 5

    assert schemas()["dataset/noisy_numbers"] is known is not Other


WORDS = ["dataset=noisy_numbers", "loss=ntl_was", "loss.weight=2.0", "trainer.max_steps=20"]


def test_words_and_the_id_that_follows_from_them_name_the_same_run() -> None:
    base = compose(["dataset=noisy_numbers", "loss=ce", "trainer.max_steps=40"])
    by_words = compose([*WORDS, "base='loss=ce trainer.max_steps=40@30'"])
    by_id = compose([*WORDS, f"base={run_id(base)}@30"])
    assert by_words.base == by_id.base == f"{run_id(base)}@30"
    assert run_id(by_words) == run_id(by_id)
    others = [[], [f"base={run_id(base)}@40"], ["base='loss=ce trainer.max_steps=50@30'"]]
    assert len({run_id(by_id), *(run_id(compose([*WORDS, *other])) for other in others)}) == 4


def test_a_base_has_the_model_the_data_and_the_seed_of_its_run_but_not_its_loss() -> None:
    shared = ["dataset=noisy_numbers", "model=llama_tiny", "model.settings.hidden_size=32", "dataset.train_rows=500"]
    words = [*shared, "device=cpu", "seed=3", "loss=ntl_was", "loss.weight=2.0", "trainer.max_steps=20"]
    found, step = base_words([*words, "base='loss=ce seed=4 trainer.lr=1e-3@8'"]) or ([], 0)
    assert step == 8
    assert found == [*shared, "device=cpu", "loss=ce", "seed=4", "trainer.lr=1e-3"]
    assert base_words(words) is None
    assert base_words([*words, "base=some-id@8"]) is None


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's own choices, whose name Hydra's grammar would read otherwise."""
    files = {
        "model/llama_mine.yaml": (
            "defaults:\n  - llama_tiny\n  - _self_\nname: llama_mine\nsettings: {hidden_size: 32}\n"
        ),
        "loss/foreign.yaml": "defaults:\n  - /schema/loss/base@_here_\nname: foreign\nkind: foreign\n",
    }
    folder = tmp_path / "my configs, it's $1"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    yield folder
    own_folders.clear()


def test_a_folder_of_one_s_own_brings_values_and_no_code(own: Path) -> None:
    use(own)
    assert {"llama_mine", "llama_tiny"} <= {*choices("model")}
    model = compose(["dataset=noisy_numbers", "model=llama_mine", "tokenizer=digit"]).model
    assert (model.name, model.settings["hidden_size"]) == ("llama_mine", 32)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UserError, match=r"^loss\.kind=foreign: 'foreign' is none; choose one of ce, "):
        compose(["dataset=noisy_numbers", "loss=foreign"])
    (own / "loss" / "a_was.yaml").write_text("defaults:\n  - /schema/loss/base@_here_\nname: a_was\nkind: was\n")
    assert compose(["dataset=noisy_numbers", "loss=was"]).loss.name == "ntl_was"  # not one's own of the kind
    (own / "loss" / "copied.yaml").write_text("defaults:\n  - /schema/loss/base@_here_\nname: ntl_was\nkind: mse\n")
    with pytest.raises(UserError, match=r"/copied\.yaml: name: ntl_was is another file's; write name: copied$"):
        compose(["dataset=noisy_numbers", "loss='copied'"])
    (own / "loss" / "broken.yaml").write_text("name: 'broken")
    with pytest.raises(YAMLError) as caught:
        compose(["dataset=noisy_numbers", "loss=broken"])
    assert re.search(r"while scanning a quoted scalar in .*/loss/broken\.yaml", explain(caught.value))
    (own / "trainer").mkdir()
    (own / "trainer" / "quick.yaml").write_text("defaults: [default]\nname: quick\nlr: 1e-3\nmax_steps: 3\n")
    with pytest.raises(
        UserError, match=r"/quick\.yaml: scale= comes later and sets lr, max_steps; write .*/scale/NAME"
    ):
        use(own)
    (own / "trainer" / "quick.yaml").unlink()
    # One without choices, with one of ours or with no plain file is refused.
    with pytest.raises(UserError, match="no YAML file in a folder named like a setting: model, "):
        use(own / "model")
    for name, target, line in (
        ("ce", __file__, "loss=ce exists already"),
        ("device", "/dev/null", "a pipe, socket or"),
    ):
        (own / "loss" / f"{name}.yaml").symlink_to(target)
        with pytest.raises(UserError, match=line):
            use(own)
