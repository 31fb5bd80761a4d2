"""A typed, validated Config: from override strings and the files of the ``config`` folder, or as a run stored it."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, cast, get_type_hints

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException, ValidationError

from ntl.config import folders, root
from ntl.config.folders import FORMER, GROUPS, choices, literal, own_folders, read_yaml, renamed
from ntl.config.identity import contents_of, plain, read_contents, run_id, setting_files
from ntl.config.loss import LossConfig, checked_kind, loss_choice
from ntl.config.model import check_type, describe_weights
from ntl.config.settings import MISSING, SCHEMAS, about, closest, describe, did_you_mean, nested, quote, setting_names
from ntl.config.trainer import DERIVED, WARMUP, TrainerConfig
from ntl.config.validation import validate
from ntl.system.errors import UserError, needs
from ntl.system.hub import from_package

# Settings that a base takes from the run that names it, unless ``base=`` sets them.
SHARED = ("model", "tokenizer", "dataset", "scale", "seed", "output_dir", "data_dir", "device")

# Settings that may be changed when a finished run is decoded again.
CHANGEABLE = ("decoding", "device", "data_dir", "dataset")


@cache
def schemas() -> dict[str, Any]:
    """``SCHEMAS`` with the schemas of data sets, which stand in the files of ``ntl.data.sets``."""
    package = import_module("ntl.data.sets")
    with needs("train"):
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
    return SCHEMAS


def known_datasets() -> list[str]:
    """The choices of ``dataset=`` that need no path."""
    return [name for name in choices("dataset") if "path" not in setting_names(schemas()[f"dataset/{name}"])]


# What Hydra reads as it is typed: a word that is no value of another type, or a text in quotation marks.
BARE = re.compile(r"(?!(?:null|true|false|nan|inf)$)[a-z_./][\w./-]*|'[^']*'|\"[^\"]*\"", re.ASCII | re.IGNORECASE)


@cache
def _texts() -> frozenset[str]:
    parts = [("", root.Config), *((f"{path.partition('/')[0]}.", schema) for path, schema in schemas().items())]
    return frozenset(path + name for path, part in parts for name, kind in get_type_hints(part).items() if kind is str)


def quoted(word: str, *, sweep: bool = False) -> str:
    """An override as Hydra's grammar takes it: the value of a setting that is text stands for itself.

    One in quotation marks is left as it is, and ``${...}`` is resolved, but not in a template or a pattern. With
    ``sweep`` commas separate values, but not in these. UserError for several choices of a group where one is meant.
    """
    word = renamed(word)
    key, _, value = word.partition("=")
    name = key.lstrip("+")
    if name == "output_dir" and not value:
        raise UserError("output_dir=: empty; give a folder, as output_dir=outputs.")
    if name == "loss" and value:
        value = ",".join(map(loss_choice, value.split(",")))
        word = f"{key}={value}"
    is_choice = name in GROUPS and name not in ("extra_decodings", "experiment")  # of which several make sense
    if is_choice and ("[" in value or ("," in value and not sweep)):
        several = f"{name}={re.sub('[][ ]', '', value)}"
        raise UserError(f"{word}: name one choice; `python train.py -m {several}` trains a run for each.")
    if not name:
        raise UserError(f"{word}: not a setting of the form key=value.")
    is_text = name in _texts() or (name in GROUPS and "[" not in value and not sweep)
    if not value or not is_text or (value[0] in "'\"" and value[0] == value[-1] != value):
        return word
    if name.endswith((".template", ".exclude_numbers")):
        return f"{key}={quote(literal(value))}"
    parts = value.split(",") if sweep else [value]
    return f"{key}={','.join(part if BARE.fullmatch(part) else quote(part) for part in parts)}"


@cache
def register() -> None:
    """Register the schemas with Hydra, once; called before any composition."""
    store = ConfigStore.instance()
    store.store(name="base_schema", node=root.Config)
    for path, node in schemas().items():
        group, name = path.rsplit("/", 1)
        store.store(group=f"schema/{group}", name=name, node=node)
    with suppress(ImportError):
        from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf

        @dataclass
        class SlurmConfig(SlurmQueueConf):
            """The settings of hydra-submitit-launcher, and the one of submitit's that containers need."""

            srun_args: list[str] = field(default_factory=list)

        store.store(group="hydra/launcher", name="submitit_slurm_srun", node=SlurmConfig)


def hint(key: str, known: Sequence[str], parent: str = "") -> str:
    """A suggestion for an unknown key: a setting of that name in a group, or a similar one."""
    if key == "name":  # every group has one
        return ""
    names = {end: {end: None} for end in known}
    for path, schema in () if parent else schemas().items():
        for name in describe(schema(), f"{path.partition('/')[0]}."):
            names.setdefault(name.rpartition(".")[2], {})[name] = None
    return did_you_mean(name for end in closest(key, names) for name in names[end])


def unknown_setting(name: str, schema: type, sign: str = "") -> str:
    """One line for a dotted name whose last part is no key of the schema; ``sign`` is typed before it."""
    parent, _, key = name.rpartition(".")
    known, where = setting_names(schema), f"{parent} has" if parent else "choose one of"
    listed = ", ".join(known) or "none; take another, as hydra/launcher=slurm"  # Hydra's own launcher has none
    of = [path for path, other in schemas().items() if parent == "dataset" == path[:7] and key in setting_names(other)]
    meant = f" It is a setting of {', '.join(of).replace('/', '=')}." if of else hint(key, known, parent)
    return f"{sign}{name}: no such setting; {where} {listed}.{meant}"


def base_words(overrides: Sequence[str]) -> tuple[list[str], int] | None:
    """The overrides of the run that ``base=OVERRIDES@STEP`` describes, and the step; None without such a ``base=``.

    Settings in ``SHARED`` need not be repeated in it. UserError where the overrides are malformed.
    """
    keys = [word.partition("=")[0].lstrip("+") for word in overrides]
    bases = [word for word, key in zip(overrides, keys, strict=True) if key == "base"]
    described = str(_parsed(bases)[-1].value()) if bases else ""
    if "=" not in described:
        return None
    text, _, step = described.rpartition("@")
    words = text.split()
    own = {word.partition("=")[0] for word in words}
    if not step.isdecimal() or not all("=" in word for word in words):
        raise UserError(f"base={described}: give the overrides of a run and a step, as 'loss=ce seed=1@8000'.")
    if "base" in own:
        raise UserError(f"base={described}: a base has no base of its own.")
    if "experiment" in keys:
        raise UserError("base= experiment=: an experiment sets what both runs share; name the base by its id, ID@STEP.")
    shared = [word for word, key in zip(overrides, keys, strict=True) if key.split(".")[0] in SHARED and key not in own]
    return [*shared, *words], int(step)


def _resolve_base(config: root.Config, overrides: Sequence[str]) -> None:
    if not (described := base_words(overrides)):
        return
    words, step = described
    base = compose(words)
    if step > base.trainer.max_steps and not base.trainer.epochs:
        raise UserError(f"base={config.base}: that run ends at step {base.trainer.max_steps}; name a step up to it.")
    for group in ("model", "tokenizer"):
        if plain(getattr(base, group)) != plain(getattr(config, group)):
            line = f"that run has another {group}, so its weights do not fit; leave {group}= out of it."
            raise UserError(f"base={config.base}: {line}")
    config.base = f"{run_id(base)}@{step}"


def _check_names(config: root.Config, overrides: Sequence[str], typed: Sequence[str]) -> None:
    """UserError where a file has another name than its own, as a copied one has: ids and records go by it."""
    for group, _, choice in (word.partition("=") for word in overrides):
        name, choice = getattr(getattr(config, group, None), "name", ""), choice.strip("'\"")
        if group not in GROUPS or name in ("", choice) or f"{group}.name" in typed:
            continue
        files = [folder / group / f"{choice}.yaml" for folder in (folders.CONFIG_DIR, *own_folders)]
        for file in filter(Path.is_file, files):
            if f"name: {name}" in file.read_text(encoding="utf-8").splitlines():
                raise UserError(f"{file}: name: {name} is another file's; write name: {choice}")


def _settle(config: root.Config, typed: Sequence[str]) -> None:
    """A typed number of steps wins over the epochs of a scale, and loaded weights have a dropout of their own.

    A kind that is given by its function is the kind, and one that is typed names the loss.
    """
    for length, steps in DERIVED.items():
        if f"trainer.{steps}" in typed and f"trainer.{length}" not in typed:
            setattr(config.trainer, length, 0.0)
    config.loss.kind = checked_kind(config.loss.kind)
    if "loss.kind" in typed and "loss.name" not in typed:
        config.loss.name = loss_choice(config.loss.kind)
    if config.model.pretrained and "model.dropout" not in typed:
        config.model.dropout = None


def _reset_idle(config: root.Config) -> None:
    """Settings without effect get their defaults, so that ``loss=ce,ntl_was loss.weight=0.3,2`` trains CE once."""
    if not config.loss.has_number:
        config.loss.weight = LossConfig.weight
    for name in WARMUP if config.trainer.schedule == "plateau" else ("patience", "factor"):
        setattr(config.trainer, name, getattr(TrainerConfig, name))
    if config.tokenizer.kind != "xval":
        config.tokenizer.paper_compat = False


def to_config(raw: DictConfig, overrides: Sequence[str] = ()) -> root.Config:
    """The typed, validated form of what Hydra composed from ``overrides``, which resolving ``base=`` needs."""
    config = OmegaConf.to_object(raw)
    assert isinstance(config, root.Config)
    for path, part in nested(config):  # a key added with "+" passes Hydra's check
        for key in vars(part).keys() - about(type(part)).keys():
            raise UserError(unknown_setting(f"{path}{key}", type(part), "+"))
    typed = [word.partition("=")[0].lstrip("+") for word in overrides]
    _check_names(config, overrides, typed)
    if config.model.pretrained and not config.model.path:
        config.model.path = str(from_package(config.model.hub_id, config.data_dir) or "")
    _settle(config, typed)
    describe_weights(config.model)
    _resolve_base(config, overrides)
    validate(config, typed)
    if Path(config.model.path).is_dir():
        check_type(config.model)
    _reset_idle(config)
    config.dataset.check(config.data_dir)
    read_contents(config.dataset, config.data_dir)
    return config


def config_of_job(raw: DictConfig) -> tuple[root.Config, list[str]]:
    """Within a Hydra job: its config, and its overrides as they were typed.

    Overrides are not resolved here, so that an interpolation that fails is reported with its key.
    """
    hydra = HydraConfig.get()
    # A job of a launcher is another process, which has not seen the command line.
    own_folders[:] = [Path(place.path) for place in hydra.runtime.config_sources if place.provider == "command-line"]
    overrides: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    return to_config(raw, overrides), overrides


@lru_cache(maxsize=256)
def _composed(overrides: tuple[str, ...], places: tuple[Path, ...]) -> DictConfig:
    """As Hydra composes them from the files in ``places``: ``config/`` and folders of the user's."""
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(places[0]), version_base="1.3"):
        own = ",".join(quote(f"file://{folder}") for folder in places[1:])
        return hydra_compose("train", overrides=[*overrides, *([f"hydra.searchpath=[{own}]"] if own else [])])


# What stands before a value: a setting, unless it is a group, but none of Hydra's own and nothing that is added.
_KEY = re.compile(r"(?!hydra\b)(\w[\w.]*)=")


def _parsed(overrides: Sequence[str]) -> Sequence[Any]:
    return OverridesParser.create().parse_overrides(list(overrides))


def _set(node: DictConfig, overrides: Sequence[str]) -> None:
    """Set values as Hydra sets them, one for each setting."""
    for override in _parsed(overrides):
        if override.is_sweep_override():
            raise ValidationError(f"{override.input_line}: several values, and one is meant")
        OmegaConf.update(node, override.key_or_group, override.value(), merge=True)


def _raw(overrides: Sequence[str]) -> DictConfig:
    """As Hydra composes them: each combination of groups once, in which values are set."""
    values = [word for word in overrides if (key := _KEY.match(word)) and key[1] not in GROUPS]
    groups, places = tuple(word for word in overrides if word not in values), (folders.CONFIG_DIR, *own_folders)
    raw = deepcopy(_composed(groups, places))
    try:
        _set(raw, values)
    except (HydraException, OmegaConfBaseException):
        return _composed(tuple(overrides), places)  # which says what is wrong
    return raw


def compose(overrides: Sequence[str] = (), *, check: bool = True) -> root.Config:
    """The config that ``train.py`` makes of these overrides; or as they stand, whether or not they fit each other."""
    overrides = [quoted(word) for word in overrides]
    raw = _raw(overrides)
    return to_config(raw, overrides) if check else cast(root.Config, OmegaConf.to_object(raw))


def _merged(group: str, values: Any) -> Any:
    """Stored values in the schema that has all of their keys and, if any, their target: of their name, if it has."""
    fitting = []
    for path, schema in schemas().items():
        target = getattr(schema, "_target_", MISSING)
        is_same = target in (MISSING, values.get("_target_", target))
        if path.startswith(f"{group}/") and is_same and values.keys() <= {field.name for field in fields(schema)}:
            fitting.append((path != f"{group}/{values.get('name')}", target == MISSING, len(fitting), schema))
    return OmegaConf.merge(OmegaConf.structured(min(fitting)[-1]), values) if fitting else values


def from_values(values: Mapping[str, Any], where: str, overrides: Sequence[str] = ()) -> root.Config:
    """The dataclasses that ``values`` (plain dictionaries) were written from, whatever ``config/`` says now.

    UserError, which names ``where`` or an override, for a key or a type that no schema has.
    """
    node = OmegaConf.structured(root.Config)
    try:
        for stored, value in values.items():
            key = FORMER.get(stored, stored)
            if key == "extra_decodings" and isinstance(value, Mapping):
                value = {name: _merged("decoding", extra) for name, extra in value.items()}
            OmegaConf.update(node, key, _merged(key, value) if key in GROUPS and isinstance(value, Mapping) else value)
        for where in overrides:
            _set(node, [quoted(where)])
        config = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:
        why = "" if overrides else "; written by another version of ntl? Commit c70519fb reads what is older."
        raise UserError(f"{where}: {str(error).splitlines()[0]}{why}") from error
    assert isinstance(config, root.Config)
    return config


def read_config(folder: Path, overrides: Sequence[str] = ()) -> root.Config:
    """The config of a run folder, with overrides of ``CHANGEABLE``. UserError: no config.yaml, or another override.

    ``dataset=NAME`` is that data set at the run's scale and seed.
    """
    path = folder / "config.yaml"
    values = read_yaml(path) if path.is_file() else None
    if not isinstance(values, dict):
        raise UserError(f"{path}: no config of a run; give the folder of one, for example outputs/<run id>.")
    home = str(folder.resolve().parent).removesuffix(f"/{Path(str(values.get('output_dir')))}")
    if (data_dir := Path(home, str(values.get("data_dir")))).is_dir():  # of where the run was made, not of here
        values["data_dir"] = str(data_dir)
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or key.split(".")[0] not in CHANGEABLE:
            raise UserError(f"{override}: only {', '.join(CHANGEABLE)} may be set for a trained run.")
    of_data = [word for word in overrides if word.startswith("dataset")]
    if any(word.startswith("dataset=") for word in of_data):
        stored = from_values(values, str(path))
        own = [f"scale={stored.scale.name}", f"seed={stored.seed}", f"dataset.format={stored.dataset.format}"]
        values["dataset"] = literal(plain(compose([*own, *of_data]).dataset))
        overrides = [word for word in overrides if word not in of_data]
    for word in overrides:
        if word.startswith("decoding=") and word != f"decoding={values['decoding']['name']}":
            # Whether it fits is a question of this run, which ``validate`` answers.
            values["decoding"] = literal(plain(OmegaConf.to_object(_raw([quoted(word)])["decoding"])))
    config = from_values(values, str(path), [word for word in overrides if not word.startswith("decoding=")])
    if typed := {word.partition("=")[0].removeprefix("dataset.") for word in overrides if word.startswith("dataset.")}:
        config.dataset.check(config.data_dir)
        files = setting_files(config.dataset, config.data_dir)  # another file is another data set
        config.dataset.contents |= {key: contents_of(files[key]) for key in typed & files.keys()}
    config.output_dir = str(folder.parent)
    # The run has its own weights and tokenizer, so the folders that it began from may be gone.
    parts = {group: getattr(config, group) for group in ("model", "tokenizer")}
    validate(replace(config, **{group: replace(part, path=part.path and str(folder)) for group, part in parts.items()}))
    return config
