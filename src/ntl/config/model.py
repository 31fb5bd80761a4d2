"""Schemas of models and tokenizers: where the weights come from, and the architecture where none are loaded."""

import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ntl.config.settings import MISSING, Rule, Schema, nearest, setting
from ntl.config.validation import ANSWERS, FAMILIES, HEADS, kinds_of, value_of
from ntl.system.errors import UserError, needs
from ntl.system.hub import CONFIG, read_settings, require, snapshot, weight_files, weights_digest

_ROWS = "Rows of the embedding, at least; 0: one for each token."
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def _size(default: int, meaning: str, unit: str = "", origin: str = "published") -> Any:
    return setting(default, meaning, unit, origin=origin, min=1)


@dataclass
class LoraConfig(Schema):
    """Low-rank adaptation (Hu et al., 2021) of every linear layer."""

    rank: int = setting(0, "Rank of the adapters; 0: all weights are trained instead.", min=0)
    alpha: float = setting(32.0, "The adapters' output is multiplied by alpha / rank.", above=0, needs="rank")
    dropout: float = setting(0.0, "Dropout before the adapters.", min=0, max=0.9, needs="rank")
    full: list[str] = setting(list, "Prefixes of weights trained in full: those that a checkpoint does not contain.")

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        if "model.lora.full" in typed and not self.rank:
            yield ".full", "has no effect with model.lora.rank=0; set the rank, or leave it out."
        if self.rank and config.trainer.parallel == "fsdp":
            yield ".rank trainer.parallel", "adapters of sharded weights are not saved; take trainer=ddp."
        if self.rank and not config.model.pretrained:
            yield ".rank model.pretrained", "adapters change learned weights; give these, or leave model.lora out."


@dataclass
class ModelConfig(Schema):
    """Settings of every model."""

    _target_: str = setting(MISSING, room="ntl.models")
    name: str = setting(MISSING, "The choice of the group, part of the run's name.")
    family: str = setting(MISSING, "Decides which tokenizers and data sets fit; not to be set.")
    head: str = setting("lm", "Decides which objectives and decodings fit; not to be set.", choices=tuple(HEADS))
    hub_id: str = setting("", "The published checkpoint, `owner/name`; empty: there is none.")
    tokenizer_hub_id: str = setting("", "The published tokenizer of a model without published weights.")
    path: str = setting("", "Weights and tokenizer from a local folder or another `owner/name`, in place of both.")
    requires: str = setting("", "What the model needs, in words; not to be set.")
    pretrained: bool = setting(True, "Start from the published weights or those in `path`; false: from random ones.")
    dropout: float | None = setting(
        0.1, "Dropout; null, unless it is typed: as in the loaded weights.", origin="published", min=0, max=0.9
    )
    lora: LoraConfig = setting(LoraConfig, "Low-rank adapters, trained in place of all weights.")

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        family, answers = FAMILIES.get(self.family), config.dataset.answers
        if family is None or family.head != self.head:
            known = ", ".join(f"{name} ({kind.head})" for name, kind in FAMILIES.items())
            yield "model .family .head", f"choose one of {known}.{nearest(self.family, FAMILIES)}"
        assert family is not None
        if config.tokenizer.kind not in family.tokenizers:
            kinds = " or ".join(family.tokenizers)
            yield "model tokenizer", f"this model reads {kinds}; use tokenizer={family.tokenizers[-1]}."
        if answers not in family.answers:
            yield "model dataset", f"its answer is {ANSWERS[answers]}, not {kinds_of(family.answers)}; take another."
        for name in ("objective", "decoding", *(f"extra_decodings.{name}" for name in config.extra_decodings)):
            if (other := value_of(config, name).head) != self.head:
                line = f"this model has {HEADS[self.head]}, and that is for {HEADS[other]}; leave it out."
                yield f"model {name}", line
        if not self.pretrained and self.dropout is None:
            yield ".dropout", "random weights have none of their own; give a rate, or leave it out."
        if self.pretrained and not source(self):
            yield (
                "model .pretrained",
                "no weights are published; take model=hf model.path=FOLDER, or pretrained=false.",
            )
        if typed:
            yield from _of_what_was_typed(self, config, typed)


@dataclass
class T5Config(ModelConfig, schema="model/t5"):
    """T5 v1.0: tied embeddings, ReLU, relative positions. Shaped as T5-Small."""

    _target_: str = "ntl.models.pretrained.build_t5"
    family: str = "t5"
    d_model: int = _size(512, "Width of the hidden states.")
    d_kv: int = _size(64, "Width of one attention head.")
    d_ff: int = _size(2048, "Width of the feed-forward layers.")
    num_layers: int = _size(6, "Layers of the encoder, and of the decoder.")
    num_heads: int = _size(8, "Attention heads of a layer.")
    vocab_size: int = setting(0, _ROWS, "tokens", min=0)
    initializer_factor: float = setting(1.0, "Factor of the random initial weights.", origin="published", above=0)


@dataclass
class T5RegressionConfig(T5Config, schema="model/t5_regression"):
    """T5 with one output on the decoder's last position (paper, Table 4)."""

    _target_: str = "ntl.models.pretrained.build_t5_regression"
    family: str = "t5_regression"
    head: str = "regression"


@dataclass
class RTConfig(T5Config, schema="model/rt"):
    """Regression Transformer (Born and Manica, 2023) as in the paper: T5 with frozen number encodings.

    A token ``_d_e_`` is encoded as d x 10^e.
    """

    _target_: str = "ntl.models.rt.build"
    family: str = "rt"
    log_scale: bool = setting(True, "Scale the number encodings by their logarithm.", origin="paper")
    max_value: float = setting(3e9, "The value that scales the number encodings to 10.", origin="paper", above=0)


@dataclass
class GPT2Config(ModelConfig, schema="model/gpt2"):
    """GPT-2: learned positions, tied embeddings, GELU. Shaped as GPT-2 Small."""

    _target_: str = "ntl.models.pretrained.build_gpt2"
    family: str = "decoder"
    n_embd: int = _size(768, "Width of the hidden states.")
    n_layer: int = _size(12, "Layers.")
    n_head: int = _size(12, "Attention heads of a layer.")
    n_positions: int = _size(1024, "Question and answer together.", "tokens")
    vocab_size: int = setting(0, _ROWS, "tokens", min=0)


@dataclass
class GPT2RegressionConfig(GPT2Config, schema="model/gpt2_regression"):
    """GPT-2 with one output on the last token."""

    _target_: str = "ntl.models.pretrained.build_gpt2_regression"
    family: str = "decoder_regression"
    head: str = "regression"


@dataclass
class CausalConfig(ModelConfig, schema="model/causal"):
    """Any decoder-only model of transformers."""

    _target_: str = "ntl.models.pretrained.build_causal"
    family: str = "decoder"
    architecture: str = setting("", "Its `model_type` in transformers: granite, llama, qwen2, ...")
    vocab_size: int = setting(0, _ROWS, "tokens", min=0)
    settings: dict[str, Any] = setting(dict, "Those of its config class: `+model.settings.KEY=VALUE`.")


@dataclass
class HFConfig(ModelConfig, schema="model/hf"):
    """The weights in `path` as they are: any decoder or encoder-decoder of transformers, with its own config.

    ``family`` and ``name`` describe the weights (``describe_weights``).
    """

    _target_: str = "ntl.models.pretrained.build"
    family: str = "decoder"
    file: str = setting("", "A GGUF file in the folder `path`, whose weights are dequantized.")


@dataclass
class HFRegressionConfig(HFConfig, schema="model/hf_regression"):
    """The weights in `path` as they are, of a decoder, with one output on the last token in place of the next one."""

    _target_: str = "ntl.models.pretrained.build_regression"
    family: str = "decoder_regression"
    head: str = "regression"


@dataclass
class XValConfig(ModelConfig, schema="model/xval"):
    """xVal (Golkar et al., 2023) as the paper trains it: a pre-norm encoder whose `[NUM]` embedding is scaled."""

    _target_: str = "ntl.models.xval.build"
    family: str = "xval"
    head: str = "masked_number"
    pretrained: bool = False
    d_model: int = _size(768, "Width of the hidden states.", origin="original code")
    d_ff: int = _size(3072, "Width of the feed-forward layers.", origin="original code")
    num_layers: int = _size(12, "Layers.", origin="original code")
    num_heads: int = _size(12, "Attention heads of a layer.", origin="original code")
    max_positions: int = _size(512, "Question and answer together.", "tokens", "original code")
    vocab_size: int = setting(0, _ROWS, "tokens", min=0)
    paper_compat: bool = setting(False, "Attend to padding, as the original code does.")


# Settings that describe the model's file, which nobody types.
FIXED = ("name", "family", "head", "requires", "hub_id")
# Settings that have an effect although weights are loaded; the weights determine all others.
NOT_IN_WEIGHTS = {*(item.name for item in fields(ModelConfig)), "log_scale", "max_value", "paper_compat", "file"}
# The `model_type` that config.json has where the weights fit the settings of a schema; of any other schema it has any.
MODEL_TYPES = {GPT2Config: ("gpt2",), RTConfig: ("t5", "ntl_rt"), T5Config: ("t5",), XValConfig: ("ntl_xval",)}


def of_weights(config: ModelConfig) -> list[str]:
    """The settings that loaded weights determine."""
    return [item.name for item in fields(config) if item.name not in NOT_IN_WEIGHTS]


def source(config: ModelConfig) -> str:
    """The folder or hub id of the weights; empty for a model without published weights."""
    return config.path or config.hub_id


def gguf_file(config: ModelConfig) -> str:
    """The GGUF file in the folder of the weights; empty for weights of safetensors."""
    return config.file if isinstance(config, HFConfig) else ""


def tokenizer_source(config: ModelConfig) -> str:
    """The folder or hub id of the tokenizer; empty for one that is trained on the prepared text."""
    return source(config) or config.tokenizer_hub_id


@dataclass
class TokenizerConfig(Schema, schema="tokenizer/base"):
    """How text becomes token ids, and which of them are numbers."""

    name: str = setting(MISSING, "The choice of the group.")
    kind: str = setting(MISSING, "How numbers are cut into tokens.", choices=("default", "digit", "rt", "xval"))
    digits_only: bool = setting(True, "Only `0` to `9` are numbers to the losses; false: every decimal number.")
    path: str = setting("", "Tokenizer files in a local folder or at `owner/name`, in place of the model's own.")
    vocab_size: int = setting(256, "The most tokens of a tokenizer that is trained here.", "tokens", min=32)
    paper_compat: bool = setting(False, "With `kind=xval`, the sign of a number stays text, as in the original code.")


def _of_what_was_typed(model: ModelConfig, config: Any, typed: Collection[str]) -> Iterator[Rule]:
    is_own = not isinstance(model, HFConfig) and (not model.hub_id or ("model.hub_id" in typed and not model.path))
    if is_own and source(model) and model.family in ("decoder", "t5"):
        line = f"this model has random weights; use model=hf model.path={source(model)}, which takes these as they are."
        yield f"model .{'path' if model.path else 'hub_id'}", line
    for key in typed:
        name = key.removeprefix("model.").partition(".")[0] if key.startswith("model.") else ""
        if name in FIXED:
            yield key, "describes the model's file; write one of your own."
        if model.pretrained and name in of_weights(model):
            yield key, "loaded weights have their own; leave it out, or set model.pretrained=false."
        if name == "path" and model.path and not model.pretrained:
            yield key, "not read with model.pretrained=false; set that to true, or give tokenizer.path= instead."
        if name == "tokenizer_hub_id" and (config.tokenizer.path or source(model)):
            yield key, "nothing is read from there, since the tokenizer comes from elsewhere; leave it out."
    if {"scale", "experiment"}.isdisjoint(typed):
        if model.pretrained and config.scale.name == "tiny":
            yield "model .pretrained", "scale=tiny is meant for random weights; add scale=finetune, or another."
        if not model.pretrained and config.scale.name == "finetune":
            line = "scale=finetune is meant for learned weights; add scale=tiny, or scale=paper, the paper's own steps."
            yield "model .pretrained", line


# ---- given weights: what ``model=hf`` is called after, and whether weights fit the file that loads them

HF = "hf"
UNITS = {"b": 10**9, "m": 10**6, "k": 10**3}
# Ends of the names of classes of transformers that read text and write none.
READERS = ("ForMaskedLM", "ForPreTraining", "EncoderModel")


def describe_weights(model: ModelConfig) -> None:
    """Set the family and the name of ``model=hf`` from its weights: architecture, parameters and digest, or the hub id.

    A model file of one's own that uses the schema keeps its name. Of a hub id that is not in the cache, config.json is
    fetched. UserError: no weights are given, they cannot be read, or are of neither a decoder nor an encoder-decoder.
    """
    if not isinstance(model, HFConfig):
        return
    name, file, folder = source(model), model.file, Path(source(model))
    if not name:
        raise UserError(f"model={model.name}: give the weights by model.path=FOLDER or model.path=owner/name.")
    if not model.pretrained:
        line = "it has the shapes of the weights in model.path alone; for random weights take model=gpt2_small, say."
        raise UserError(f"model={model.name} model.pretrained=false: {line}")
    if file and not folder.is_dir():
        raise UserError(f"model.path={name} model.file={file}: a GGUF file is read from a folder; give that.")
    if not folder.is_dir() and not HUB_ID.fullmatch(name):
        return  # ``validate`` says so
    if isinstance(model, HFRegressionConfig) and model.name != f"{HF}_regression" and not folder.is_dir():
        return  # all is in its own file: a table with its records is made where the weights are not
    require(name, file)
    files = weight_files(folder, file) if folder.is_dir() else []
    if file:
        architecture, parameters = gguf_header(folder / file)
        model.family = "t5" if architecture.startswith("t5") else "decoder"
    else:
        config = config_of(name) or {}
        architecture, parameters = str(config.get("model_type", "")), stored_parameters(files)
        model.family = _family(name, config)
    if model.head == "regression":
        if model.family != "decoder":
            line = f"a {architecture} is no decoder; the head is on the last token of one"
            raise UserError(f"model={model.name} model.path={name}: {line}. Take model=t5_small_regression for a T5.")
        model.family = "decoder_regression"
    if model.name in (HF, f"{HF}_regression"):
        words = f"{architecture} {_count(parameters)} {weights_digest(folder, file)[:8]}" if files else folder.name
        model.name = re.sub(r"[^a-z0-9]+", "_", model.name.replace(HF, words).lower()).strip("_")


def _family(name: str, config: dict[str, Any]) -> str:
    classes = [str(name) for name in config.get("architectures") or []]
    kind = str(config.get("model_type", ""))
    is_reader = bool(classes) and all(name.endswith(READERS) for name in classes)
    is_bert = "bert" in kind and not config.get("is_decoder") and not any("CausalLM" in name for name in classes)
    if is_reader or is_bert:
        line = "reads text and writes none; give the weights of a decoder or of a T5."
        raise UserError(f"model.path={name}: {classes[0] if classes else kind} {line}")
    return "t5" if config.get("is_encoder_decoder") else "decoder"


def _count(parameters: int) -> str:
    units = (sign for sign in "bmk" if parameters >= 10 * UNITS[sign])
    return next((f"{round(parameters / UNITS[sign])}{sign}" for sign in units), str(parameters))


def other_shape(model: ModelConfig) -> str:
    """One line where the weights in ``model.path`` have another shape than the model that is named; else empty."""
    config = (config_of(model.path) if model.pretrained and Path(model.path).is_dir() else None) or {}
    sizes = {name: getattr(model, name) for name in of_weights(model)}
    for key, value in (sizes | getattr(model, "settings", {})).items():
        if isinstance(value, int) and key != "vocab_size" and config.get(key, value) != value:
            what = f"weights of another shape ({key} is {config[key]}, not {value})"
            return f"model={model.name} model.path={model.path}: {what}; model=hf calls them what they are."
    return ""


def check_type(model: ModelConfig) -> None:
    """UserError for weights of another architecture than the model's file describes.

    Weights at a hub id are checked once their config is in the cache.
    """
    types = next((types for schema, types in MODEL_TYPES.items() if isinstance(model, schema)), ())
    if isinstance(model, CausalConfig) and model.architecture:
        types = (model.architecture, model.architecture.removesuffix("_text"))
    config = config_of(source(model)) if model.pretrained and source(model) else None
    stored = (config or {}).get("model_type")
    if types and stored and stored not in types:
        line = f"these weights are of a {stored}, and this model is a {types[0]}; use model={HF}, which takes any."
        raise UserError(f"model={model.name} model.path={source(model)}: {line}")


def config_of(name: str) -> dict[str, Any] | None:
    """Return config.json of a folder or of a cached hub id; None if there is none. UserError if it cannot be read."""
    folder = Path(name) if Path(name).is_dir() else snapshot(name)
    return read_settings(folder / CONFIG) if folder and (folder / CONFIG).is_file() else None


def stored_parameters(files: Sequence[Path]) -> int:
    """Return the number of values in safetensors files, from their headers; other files are passed over.

    UserError for a file that is not as long as its header says.
    """
    total = 0
    for path in (path for path in files if path.suffix == ".safetensors"):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
                end = file.tell() + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
            if (size := path.stat().st_size) != end:
                raise ValueError(f"{size:,} bytes, and {end:,} by its header")
        except (OSError, ValueError, OverflowError, MemoryError, KeyError, AttributeError, TypeError) as error:
            raise UserError(f"{path}: truncated or corrupt safetensors file ({error}); fetch it again.") from error
        total += sum(math.prod(tensor["shape"]) for tensor in tensors)
    return total


def gguf_header(path: Path) -> tuple[str, int]:
    """Return the architecture and the number of values in a GGUF file, from its header. UserError: it is none."""
    with needs("gguf"):
        import gguf
    try:
        reader = gguf.GGUFReader(path)
        architecture = reader.fields["general.architecture"].contents()
        return str(architecture), sum(int(tensor.n_elements) for tensor in reader.tensors)
    except Exception as error:  # the reader raises errors of several types
        raise UserError(f"{path}: cannot be read as a GGUF file ({str(error).splitlines()[0]}).") from error
