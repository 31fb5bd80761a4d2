"""Any decoder or encoder-decoder that transformers loads, with the config of its own weights."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from ntl.config.model import HFConfig
from ntl.models.pretrained import dropout_rates, fit_vocabulary, load_pretrained, pretrained_config
from ntl.system.errors import UserError
from ntl.system.hub import tokenizer_files, weights_digest


def build(config: HFConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Load the weights with their own dropout, positions and router, or with ``config.dropout`` where that is set.

    With ``config.pretrained`` false, the model has random weights: of use for its sizes alone.

    Raises:
        UserError: The weights cannot be read, or are of no language model that transformers has.
    """
    auto_class = AutoModelForSeq2SeqLM if config.family == "t5" else AutoModelForCausalLM
    if not config.pretrained:
        return auto_class.from_config(pretrained_config(config))
    return fit_vocabulary(load_pretrained(config, auto_class, **dropout_rates(config)), tokenizer)


def tokenizer_of_gguf(folder: Path, file: str, cache_dir: Path) -> Path:
    """Return the folder itself if it has a tokenizer, else one below ``cache_dir`` with that of the GGUF file.

    Raises:
        UserError: The file has no tokenizer that transformers reads.
    """
    if tokenizer_files(folder, file) != [folder / file]:
        return folder
    saved = cache_dir / f"gguf-{weights_digest(folder, file)[:16]}"
    if saved.is_dir():
        return saved
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".gguf.part-", dir=cache_dir) as part:
        try:
            AutoTokenizer.from_pretrained(folder, gguf_file=file, trust_remote_code=False).save_pretrained(part)
        except Exception as error:  # transformers and gguf raise errors of different types
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"model.path={folder} model.file={file}: its tokenizer cannot be read ({reason}); give one by "
                "tokenizer.path=."
            ) from error
        os.chmod(part, 0o755)  # a temporary folder is closed to other users
        with suppress(OSError):  # another process was first
            os.rename(part, saved)
            os.mkdir(part)  # it is removed when the block ends
    return saved
