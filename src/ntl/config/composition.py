"""A typed, validated Config: from override strings and the files of the ``config`` folder, or as a run stored it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING, BooleanNode, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, ValidationError

from ntl.config import data, decoding, folders, generated, loss, model, packaged, root, trainer
from ntl.config.folders import choices, config_file, own_folders
from ntl.config.given import check_has_weights, check_type, describe_weights
from ntl.config.groups import of_groups
from ntl.config.identity import plain, read_contents, run_id
from ntl.config.legality import check_effects, setting_names, validate
from ntl.config.settings import describe, quoted
from ntl.config.suggestions import closest, did_you_mean
from ntl.config.targets import as_now
from ntl.config.yaml_files import read_yaml
from ntl.system.errors import UserError
from ntl.system.hub import from_package

SCHEMAS = {
    "model/t5": model.T5Config,
    "model/gpt2": model.GPT2Config,
    "model/causal": model.CausalConfig,
    "model/hf": model.HFConfig,
    "model/hf_regression": model.HFRegressionConfig,
    "model/rt": model.RTConfig,
    "model/xval": model.XValConfig,
    "model/t5_regression": model.T5RegressionConfig,
    "model/gpt2_regression": model.GPT2RegressionConfig,
    "tokenizer/base": model.TokenizerConfig,
    "loss/base": loss.LossConfig,
    "objective/next_token": loss.NextTokenConfig,
    "objective/regression": loss.RegressionConfig,
    "objective/masked_number": loss.MaskedNumberConfig,
    "objective/mtp": loss.MTPConfig,
    "objective/base": loss.ObjectiveConfig,  # of any other objective; last, since every stored one fits it
    **{
        f"dataset/{schema.name}": schema
        for schema in (*vars(data).values(), *vars(generated).values(), *vars(packaged).values())
        if isinstance(schema, type) and issubclass(schema, data.DatasetConfig) and schema.name != MISSING
    },
    "scale/base": root.ScaleConfig,
    "trainer/base": trainer.TrainerConfig,
    "decoding/base": decoding.DecodingConfig,
    "decoding/own": decoding.OwnConfig,
    "decoding/speculative": decoding.SpeculativeConfig,
    "decoding/number_head": decoding.NumberHeadConfig,
    "decoding/tree": decoding.TreeConfig,
    "decoding/likelihood": decoding.LikelihoodConfig,
    "tracking/base": root.TrackingConfig,
}

WARMUP = ("warmup_steps", "warmup_ratio")

# Settings that a base takes from the run that names it, unless ``base=`` sets them.
SHARED = ("model", "tokenizer", "dataset", "scale", "seed", "output_dir", "data_dir", "device")

# Settings that may be changed when a finished run is decoded again.
CHANGEABLE = ("decoding", "device", "data_dir", "paper_compat", "dataset")


@cache
def schemas() -> dict[str, Any]:
    """``SCHEMAS``, and that of each data set in ``config/dataset`` which ``ntl.data.sets.NAME`` defines."""
    names = [name for name in choices("dataset") if f"dataset/{name}" not in SCHEMAS]
    found = {f"dataset/{name}": data.added_schema(name) for name in names}
    return SCHEMAS | {path: schema for path, schema in found.items() if schema}


def known_datasets() -> list[str]:
    """The choices of ``dataset=`` that need no path."""
    return [name for name in choices("dataset") if "path" not in setting_names(schemas()[f"dataset/{name}"])]


@cache
def register() -> None:
    """Register the schemas with Hydra, once; called before any composition."""
    from hydra.core.config_store import ConfigStore  # here, so that commands have their help at once

    store = ConfigStore.instance()
    store.store(name="base_schema", node=root.Config)
    for path, node in schemas().items():
        group, name = path.rsplit("/", 1)
        store.store(group=f"schema/{group}", name=name, node=node)


def hint(key: str, known: Sequence[str], parent: str = "") -> str:
    """A suggestion for an unknown key: a setting of that name in a group, or a similar one."""
    if key == "name":  # every group has one
        return ""
    ends = {each: [each] for each in known}
    for path, schema in () if parent else schemas().items():
        for row in describe(schema, f"{path.partition('/')[0]}."):
            paths = ends.setdefault(row.name.rpartition(".")[2], [])
            paths += [row.name] if row.name not in paths else []
    return did_you_mean(path for each in closest(key, ends) for path in ends[each])


def _reject_added_keys(node: DictConfig, path: str = "") -> None:
    # A key added with "+" passes Hydra's check, and OmegaConf would drop it silently.
    schema = OmegaConf.get_type(node)
    known = setting_names(schema) if is_dataclass(schema) else None
    for key in node:
        if known is not None and key not in (*known, "_target_", "contents"):
            raise UserError(
                f"+{path}{key}: no such setting; choose one of {', '.join(known)}.{hint(str(key), known, path)}"
            )
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            _reject_added_keys(child, f"{path}{key}.")


def _flat(values: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {path: values}
    parts = {f"{path}.{name}" if path else str(name): item for name, item in values.items()}
    return {key: value for name, item in parts.items() for key, value in _flat(item, name).items()}


@cache
def _model_of_file(name: str, schema: type) -> dict[str, Any]:
    path = config_file("model", name)
    if path is None:
        raise UserError(f"model.name={name}: there is no config/model/{name}.yaml; write one, or leave it out.")
    values: Any = OmegaConf.load(path)
    own = OmegaConf.merge(schema, OmegaConf.masked_copy(values.get("model", values), setting_names(schema)))
    return _flat(OmegaConf.to_container(own))


def _changed(raw: DictConfig, own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the model that differ from its file, with names such as ``lora.rank``; interpolations unresolved."""
    return {key: value for key, value in _flat(OmegaConf.to_container(raw.model)).items() if own.get(key) != value}


def base_words(overrides: Sequence[str]) -> tuple[list[str], int] | None:
    """The overrides of the run that ``base=OVERRIDES@STEP`` describes, and the step; None without such a ``base=``.

    Settings in ``SHARED`` need not be repeated in it. UserError where the overrides are malformed.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_overrides(list(overrides))
    described = [str(each.value()) for each in parsed if each.key_or_group == "base" and "=" in str(each.value())]
    if not described:
        return None
    text, _, step = described[-1].rpartition("@")
    words = text.split()
    if not step.isdecimal() or not all("=" in word for word in words):
        raise UserError(f"base={described[-1]}: give the overrides of a run and a step, as 'loss=ce seed=1@8000'.")
    if any(word.startswith("base=") for word in words):
        raise UserError(f"base={described[-1]}: a base has no base of its own.")
    if any(each.key_or_group == "experiment" for each in parsed):
        raise UserError("base= experiment=: an experiment sets what both runs share; name the base by its id, ID@STEP.")
    own = {word.partition("=")[0] for word in words}
    shared = [word for word, each in zip(overrides, parsed, strict=True) if each.key_or_group.split(".")[0] in SHARED]
    return [*(word for word in shared if word.partition("=")[0] not in own), *words], int(step)


def _resolve_base(config: root.Config, overrides: Sequence[str]) -> None:
    found = base_words(overrides) if "=" in config.base else None
    if found is None:
        return
    words, step = found
    base = compose(words)
    if step > base.trainer.max_steps and not base.trainer.epochs:
        raise UserError(f"base={config.base}: that run ends at step {base.trainer.max_steps}; name a step up to it.")
    for group in ("model", "tokenizer"):
        if plain(getattr(base, group)) != plain(getattr(config, group)):
            raise UserError(
                f"base={config.base}: that run has another {group}, so its weights do not fit; leave "
                f"{group}= out of it."
            )
    config.base = f"{run_id(base)}@{step}"


def _check_warmup(config: root.Config, overrides: Sequence[str]) -> None:
    typed = [word for word in overrides if word.partition("=")[0].removeprefix("trainer.") in WARMUP]
    if typed and config.trainer.schedule.name == "plateau" and any(getattr(config.trainer, name) for name in WARMUP):
        raise UserError(f"{typed[0]} trainer.schedule=plateau: it has no warm-up; leave one of the two out.")


def _settle(config: root.Config, overrides: Sequence[str]) -> None:
    # 1, yes and on are true; what is neither true nor false is left to ``validate``.
    with suppress(ValidationError):
        config.trainer.bf16 = BooleanNode(config.trainer.bf16)._value()
    # What is typed wins over the files: a number of steps over the epochs of a scale.
    typed = {override.partition("=")[0].lstrip("+") for override in overrides}
    for length, steps in trainer.DERIVED.items():
        value, name, other = getattr(config.trainer, length), f"trainer.{length}", f"trainer.{steps}"
        if value and other in typed:
            if name in typed:
                raise UserError(
                    f"{name}={value:g} {other}={getattr(config.trainer, steps)}: {other} follows from {name}; leave "
                    "one of them out."
                )
            setattr(config.trainer, length, 0.0)
    if config.model.pretrained and "model.dropout" not in typed:
        config.model.dropout = None


def _check_scale(config: root.Config, overrides: Sequence[str]) -> None:
    """UserError for a scale that nobody chose and that does not fit: learned weights at tiny, random at finetune."""
    if any(word.startswith(("scale=", "experiment=")) for word in overrides):
        return
    chosen = f"model={config.model.name} model.pretrained={str(config.model.pretrained).lower()}"
    if config.model.pretrained and config.scale.name == "tiny":
        raise UserError(f"{chosen}: scale=tiny is meant for random weights; add scale=finetune, or another.")
    if not config.model.pretrained and config.scale.name == "finetune":
        raise UserError(
            f"{chosen}: scale=finetune is meant for learned weights; add scale=tiny, which is minutes of a CPU core, "
            "or scale=paper, the paper's own steps."
        )


def _reset_idle(config: root.Config) -> None:
    """Settings without effect get their defaults, so that ``loss=ce,ntl_was loss.weight=0.3,2`` trains CE once."""
    loss, kind = config.loss, config.tokenizer.kind
    idle = [
        (loss, () if loss.number else ("weight",)),
        (config.trainer, WARMUP if config.trainer.schedule.name == "plateau" else ("patience", "factor")),
        (config.tokenizer, () if kind == "rt" else ("max_place",)),
        (config.tokenizer, () if kind == "xval" else ("paper_compat",)),
    ]
    for part, names in idle:
        defaults = {field.name: field.default for field in fields(part)}
        for name in names:
            setattr(part, name, defaults[name])


def to_config(raw: DictConfig, overrides: Sequence[str] = ()) -> root.Config:
    """The typed, validated form of what Hydra composed from ``overrides``, which resolving ``base=`` needs."""
    _reject_added_keys(raw)
    config = OmegaConf.to_object(raw)
    assert isinstance(config, root.Config)
    own, model = _model_of_file(raw.model.name, OmegaConf.get_type(raw.model)), config.model
    check_has_weights(model, own["hub_id"])
    if model.pretrained and not model.path and (folder := from_package(model.hub_id, config.data_dir)):
        model.path = str(folder)
    _settle(config, overrides)
    describe_weights(config.model)
    _check_scale(config, overrides)
    _resolve_base(config, overrides)
    validate(config)
    check_effects(config, _changed(raw, own))
    if Path(config.model.path).is_dir():
        check_type(config.model)
    _check_warmup(config, overrides)
    _reset_idle(config)
    if config.dataset.contents:
        raise UserError("dataset.contents: it is computed from the files that other settings name; leave it out.")
    config.dataset.check(config.data_dir)
    read_contents(config.dataset, config.data_dir)
    return config


def config_of_job(raw: DictConfig) -> tuple[root.Config, list[str]]:
    """Within a Hydra job: its config, and its overrides as they were typed.

    Overrides are not resolved here, so that an interpolation that fails is reported with its key.
    """
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get()
    # A job of a launcher is another process, which has not seen the command line.
    own_folders[:] = [Path(each.path) for each in hydra.runtime.config_sources if each.provider == "command-line"]
    overrides: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    return to_config(raw, overrides), overrides


def _composed(overrides: Sequence[str]) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(folders.CONFIG_DIR), version_base="1.3"):
        return hydra_compose("train", overrides=[*overrides, *_search_path()])


def _search_path() -> list[str]:
    places = ["'file://{}'".format(str(folder).replace("'", "\\'")) for folder in own_folders]
    return [f"hydra.searchpath=[{','.join(places)}]"] if places else []


_VALUE = re.compile(r"(seed|(?!hydra\.)[a-z]\w*(\.\w+)+)=[\w.+-]*|base='[^'$]*'")


def _raw(overrides: Sequence[str]) -> DictConfig:
    """As Hydra composes them: the groups once, then plain values are set as Hydra sets them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if own_folders:  # their files may change
        return _composed(overrides)
    values = [override for override in overrides if _VALUE.fullmatch(override)]
    rest = [override for override in overrides if override not in values]
    raw = of_groups(_composed, rest, folders.CONFIG_DIR)
    try:
        for each in OverridesParser.create().parse_overrides(values):
            OmegaConf.update(raw, each.key_or_group, each.value(), merge=True)
    except (HydraException, OmegaConfBaseException):
        return _composed(overrides)  # which says what is wrong
    return raw


def compose(overrides: Sequence[str] = ()) -> root.Config:
    """The config that ``train.py`` makes of these overrides."""
    overrides = [quoted(word) for word in overrides]
    return to_config(_raw(overrides), overrides)


def _merged(group: str, values: Mapping[str, Any]) -> Any:
    """Stored values of a group in the first schema that has all of their keys and, if any, their target."""
    for path, schema in schemas().items():
        if path.startswith(f"{group}/") and values.keys() <= {field.name for field in fields(schema)}:
            target = getattr(schema, "_target_", MISSING)
            if target in (MISSING, values.get("_target_", target)):
                return OmegaConf.merge(OmegaConf.structured(schema), values)
    return values


def from_values(values: Mapping[str, Any], where: str) -> root.Config:
    """The dataclasses that ``values`` (plain dictionaries) were written from, whatever ``config/`` says now.

    UserError, which names ``where``, for a key or a type that no schema has.
    """
    node = OmegaConf.structured(root.Config)
    try:
        for key, value in as_now(values).items():
            if key == "beside":
                for name, reading in value.items():
                    OmegaConf.update(node, f"beside.{name}", _merged("decoding", reading))
            else:
                merged = _merged(key, value) if isinstance(value, Mapping) else value
                OmegaConf.update(node, key, merged, merge=merged is value)
        config = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:
        raise UserError(f"{where}: {str(error).splitlines()[0]}; written by another version of ntl?") from error
    assert isinstance(config, root.Config)
    return config


def read_config(folder: Path, overrides: Sequence[str] = ()) -> root.Config:
    """The config of a run folder, with overrides of ``CHANGEABLE``. UserError: no config.yaml, or another override.

    ``dataset=NAME`` is that data set at the run's scale and seed.
    """
    path = folder / "config.yaml"
    advice = "give the folder of a run, for example outputs/<run id>."
    if not path.is_file():
        raise UserError(f"{path}: not found; {advice}")
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: no config of a run; {advice}")
    config = from_values(values, str(path))
    data = [override for override in overrides if override.startswith(("dataset=", "dataset."))]
    if any(override.startswith("dataset=") for override in data):
        own = [f"scale={config.scale.name}", f"seed={config.seed}", f"dataset.format={config.dataset.format}"]
        config.dataset = compose([*own, *data]).dataset
        overrides = [override for override in overrides if override not in data]
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or key.split(".")[0] not in CHANGEABLE:
            raise UserError(f"{override}: only {', '.join(CHANGEABLE)} may be set for a trained run.")
        if key == "decoding":
            if override != f"decoding={config.decoding.name}":
                # Whether it fits is a question of this run, which ``validate`` answers below.
                chosen = _composed([override], folders.CONFIG_DIR)["decoding"]
                config.decoding = cast("Any", OmegaConf.to_object(chosen))
            continue
        try:
            changed = OmegaConf.merge(OmegaConf.structured(config), OmegaConf.from_dotlist([override]))
            config = cast("root.Config", OmegaConf.to_object(changed))
        except OmegaConfBaseException as error:
            raise UserError(f"{override}: {str(error).splitlines()[0]}.") from error
    config.output_dir = str(folder.parent)
    # Weights and tokenizer are those of the run itself, so the folders that it began from may be gone.
    there = {
        group: replace(part, path=str(folder))
        for group in ("model", "tokenizer")
        if (part := getattr(config, group)).path
    }
    validate(replace(config, **there))
    return config
