"""Given weights: what ``model=hf`` is called after, and whether weights fit the model's file that loads them."""

import re
from pathlib import Path
from typing import Any

from ntl.config.legality import HUB_ID
from ntl.config.model import MODEL_TYPES, CausalConfig, HFConfig, ModelConfig, gguf_file, of_weights, source
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
    require(name, file)
    files = weight_files(folder, file) if folder.is_dir() else []
    if file:
        architecture, parameters = gguf_header(folder / file)
        model.family = "t5" if architecture.startswith("t5") else "decoder"
    else:
        config = config_of(name) or {}
        architecture, parameters = str(config.get("model_type", "")), stored_parameters(files)
        model.family = _family(name, config)
    end = ""
    if model.head == "regression":
        if model.family != "decoder":
            line = f"a {architecture} is no decoder; the head is on the last token of one"
            raise UserError(f"model={model.name} model.path={name}: {line}. Take model=t5_small_regression for a T5.")
        model.family, end = "decoder_regression", " regression"
    if model.name in (HF, f"{HF}_regression"):
        words = f"{architecture} {_count(parameters)} {weights_digest(folder, file)[:8]}" if files else folder.name
        model.name = re.sub(r"[^a-z0-9]+", "_", f"{words}{end}".lower()).strip("_")


def _family(name: str, config: dict[str, Any]) -> str:
    made_by = [str(each) for each in config.get("architectures") or []]
    kind = str(config.get("model_type", ""))
    is_reader = bool(made_by) and all(each.endswith(READERS) for each in made_by)
    is_bert = "bert" in kind and not config.get("is_decoder") and not any("CausalLM" in each for each in made_by)
    if is_reader or is_bert:
        line = (
            f"{made_by[0] if made_by else kind} reads text and writes none; give the weights of a decoder or of a T5."
        )
        raise UserError(f"model.path={name}: {line}")
    return "t5" if config.get("is_encoder_decoder") else "decoder"


def _count(parameters: int) -> str:
    for above, unit, sign in ((10**10, 10**9, "b"), (10**7, 10**6, "m"), (10**4, 10**3, "k")):
        if parameters >= above:
            return f"{round(parameters / unit)}{sign}"
    return str(parameters)


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
    found = (config or {}).get("model_type")
    if types and found and found not in types and not gguf_file(model):
        line = f"these weights are of a {found}, and this model is a {types[0]}; use model={HF}, which takes any."
        raise UserError(f"model={model.name} model.path={source(model)}: {line}")
