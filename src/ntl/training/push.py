"""``scripts/push.py``: the model card of a finished run, and the upload of its checkpoint to the Hugging Face Hub."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ntl.config.cli import Parser
from ntl.config.legality import HUB_ID
from ntl.results.load import find_run
from ntl.results.publish import find_record
from ntl.results.record import RunRecord, read_record
from ntl.system.errors import UserError
from ntl.system.files import write_text
from ntl.system.hub import no_hub
from ntl.training.checkpoints import CHECKPOINTS, checkpoint_at, is_whole, newest_whole
from ntl.training.model_card import CARD, model_card

# What loading needs, and the card; the state of the optimizer and of the run stays here.
UPLOADED = (CARD, "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json")
UPLOADED += ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the card, print what would be uploaded, and upload it with ``--push``. UserError for bad input."""
    parser = Parser(
        description="Write a model card into the checkpoint folder of a finished run and list what an upload to the "
        "Hugging Face Hub would send. Nothing is sent without --push.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder, or the id of a run under --outputs")
    parser.add_argument("--to", metavar="OWNER/NAME", required=True, help="the repository on the hub")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("--push", action="store_true", help="upload, into a new private repository or an old one")
    parser.add_argument("--public", action="store_true", help="with --push: a new repository is public")
    parser.add_argument("--replace", action="store_true", help="with --push: delete other files of the repository")
    chosen = parser.parse_args(argv)
    if not HUB_ID.fullmatch(chosen.to) or re.search(r"--|\.\.", chosen.to):
        raise UserError(f"--to {chosen.to}: not a repository of the form owner/name.")
    folder = find_run(chosen.run, chosen.outputs)
    record = read_record(find_record(chosen.run, chosen.outputs))
    checkpoint = trained_checkpoint(folder, record)
    write_text(checkpoint / CARD, model_card(record, folder, chosen.to))
    files = sorted({path for pattern in UPLOADED for path in checkpoint.glob(pattern)})
    for path in files:
        print(f"{path.stat().st_size:>14,} bytes  {path}")
    if not chosen.push:
        print(f"Dry run: nothing was sent to {chosen.to}. Read {checkpoint / CARD}, then add --push.")
        return 0
    print(upload(checkpoint, [path.name for path in files], chosen.to, public=chosen.public, replace=chosen.replace))
    return 0


def trained_checkpoint(folder: Path, record: RunRecord) -> Path:
    """The checkpoint that the record's metrics are of. UserError where it is damaged or gone."""
    newest, _ = newest_whole(folder / CHECKPOINTS)
    if newest is None:
        raise UserError(f"{folder}: no whole checkpoint; train the run again.")
    scored = checkpoint_at(folder, record.scored_step)
    if scored != newest and not is_whole(scored):
        raise UserError(
            f"{newest}: the record's metrics are of step {record.scored_step}, whose checkpoint is damaged or gone; "
            "train the run again."
        )
    return scored


def upload(checkpoint: Path, names: Sequence[str], repo: str, *, public: bool = False, replace: bool = False) -> str:
    """Send these files of a folder to a model repository and return its address.

    UserError: the hub cannot be reached or refuses, or the repository has other files and ``replace`` is false.
    """
    if problem := no_hub():
        raise UserError(f"{repo}: {problem}; connect, or unset HF_HUB_OFFLINE, and give the same command.")
    from huggingface_hub import HfApi

    api = HfApi()
    with _one_line(repo):
        address = str(api.create_repo(repo, private=not public, exist_ok=True))
        others = sorted(set(api.list_repo_files(repo)) - {*names, ".gitattributes"})
        if others and not replace:
            raise UserError(
                f"{repo} has other files ({', '.join(others[:5])}), which could change what is loaded; take another "
                "name, or --replace to delete them in the same upload."
            )
        api.upload_folder(
            repo_id=repo,
            folder_path=checkpoint,
            allow_patterns=list(names),
            delete_patterns="*" if replace else None,
            commit_message="Upload of a checkpoint and its model card",
        )
    return address


@contextmanager
def _one_line(repo: str) -> Iterator[None]:
    from httpx import HTTPError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except (HfHubHTTPError, HTTPError, OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{repo}: the hub refused ({reason}); log in by `hf auth login`, or try again.") from error
