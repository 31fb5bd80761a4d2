"""Given weights: what ``model=hf`` is called after, and whether weights fit the model's file that loads them."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from ntl.config.legality import HUB_ID
from ntl.config.model import NOT_IN_WEIGHTS, HFConfig, ModelConfig, gguf_file, model_types, source
from ntl.system.errors import UserError
from ntl.system.hub import config_of, gguf_header, require, stored_parameters, weight_files, weights_digest

HF = "hf"
# Ends of the names of classes of transformers that read text and write none.
READERS = ("ForMaskedLM", "ForPreTraining", "EncoderModel")


def describe_weights(model: ModelConfig) -> None:
    """Set the family and the name of ``model=hf`` from its weights: `llama_135m_1a2b3c4d`, a hub id's own name.

    The parts of the former are the architecture, the number of stored parameters and the digest of the files. A model
    file of one's own that uses the schema keeps the name that it gives. Of a hub id that is not in the cache,
    config.json is fetched.

    Raises:
        UserError: No weights are given, they cannot be read, or they are of neither a decoder nor an encoder-decoder.
    """
    if not isinstance(model, HFConfig):
        return
    name, file = source(model), model.file
    if not name:
        raise UserError(f"model={model.name}: give the weights by model.path=FOLDER or model.path=owner/name.")
    if not model.pretrained:
        raise UserError(
            f"model={model.name} model.pretrained=false: it has the shapes of the weights in model.path alone; for "
            "random weights take a model with shapes, such as model=gpt2_small or model=llama_tiny."
        )
    folder = Path(name)
    if file and not folder.is_dir():
        raise UserError(f"model.path={name} model.file={file}: a GGUF file is read from a folder; give that.")
    if not folder.is_dir() and not HUB_ID.fullmatch(name):
        return  # ``validate`` says so
    require(name, file)
    files = weight_files(folder, file) if folder.is_dir() else []
    if file:
        architecture, parameters = gguf_header(folder / file)
        model.family = "t5" if architecture.startswith("t5") else "decoder"
    else:
        config = config_of(name) or {}
        architecture, parameters = str(config.get("model_type", "")), stored_parameters(files)
        model.family = _family(name, config)
    is_regression = model.head == "regression"
    if is_regression and model.family != "decoder":
        raise UserError(
            f"model={model.name} model.path={name}: a {architecture or model.family} is no decoder; the head "
            "is on the last token of one; take model=t5_small_regression for a T5."
        )
    if is_regression:
        model.family = "decoder_regression"
    if model.name in (HF, f"{HF}_regression"):
        words = f"{architecture} {_count(parameters)} {weights_digest(folder, file)[:8]}" if files else folder.name
        words += " regression" if is_regression else ""
        model.name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def check_has_weights(model: ModelConfig, hub_id: str) -> None:
    """UserError for weights given to a file that describes random ones, where ``model=hf`` takes them.

    ``hub_id`` is that of the model's file; empty: it has no published weights.
    """
    given = "path" if model.path else "hub_id"
    if hub_id or not source(model) or isinstance(model, HFConfig) or model.family not in ("decoder", "t5"):
        return
    raise UserError(
        f"model={model.name} model.{given}={source(model)}: this model has random weights, of shapes of its own; use "
        f"model={HF} model.path={source(model)}, which takes these weights as they are."
    )


def _family(name: str, config: dict[str, Any]) -> str:
    made_by = [str(each) for each in config.get("architectures") or []]
    kind = str(config.get("model_type", ""))
    is_reader = bool(made_by) and all(each.endswith(READERS) for each in made_by)
    is_bert = "bert" in kind and not config.get("is_decoder") and not any("CausalLM" in each for each in made_by)
    if is_reader or is_bert:
        raise UserError(
            f"model.path={name}: {made_by[0] if made_by else kind} reads text and writes none; give the weights of a "
            "decoder, such as GPT-2 or Llama, or of an encoder-decoder, such as T5."
        )
    return "t5" if config.get("is_encoder_decoder") else "decoder"


def _count(parameters: int) -> str:
    for above, unit, sign in ((10**10, 10**9, "b"), (10**7, 10**6, "m"), (10**4, 10**3, "k")):
        if parameters >= above:
            return f"{round(parameters / unit)}{sign}"
    return str(parameters)


def other_shape(model: ModelConfig) -> str:
    """One line where the weights in ``model.path`` have another shape than the model that is named; else empty."""
    config = (config_of(model.path) if model.pretrained and Path(model.path).is_dir() else None) or {}
    own = {item.name: getattr(model, item.name) for item in fields(model) if item.name not in NOT_IN_WEIGHTS}
    sizes = {**own, **getattr(model, "settings", {})}
    for key, value in sizes.items():
        if isinstance(value, int) and key != "vocab_size" and config.get(key, value) != value:
            where, what = f"model={model.name} model.path={model.path}", f"{key} is {config[key]}, not {value}"
            return f"{where}: weights of another shape ({what}); model=hf calls them what they are."
    return ""


def check_type(model: ModelConfig) -> None:
    """UserError for weights of another architecture than the model's file describes.

    Weights at a hub id are checked once their config is in the cache.
    """
    types, config = model_types(model), config_of(source(model)) if model.pretrained and source(model) else None
    found = (config or {}).get("model_type")
    if types and found and found not in types and not gguf_file(model):
        raise UserError(
            f"model={model.name} model.path={source(model)}: these weights are of a {found}, and this model is a "
            f"{types[0]}; use model={HF} model.path={source(model)}, which takes them as they are."
        )
