"""One run from a config to its record, in the order that lets a mistake show before anything slow begins."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ntl.config import Config, UserError, build, run_id
from ntl.config.errors import Busy
from ntl.config.identity import plain
from ntl.config.locks import Lock, acquire, without_locks
from ntl.config.secrets import redact
from ntl.data.base import TextDataset
from ntl.models import require, source
from ntl.results import RunRecord, lacking_readings, read_record
from ntl.training.checkpoints import by_step, checkpoint_at, is_whole, keep_newest
from ntl.training.disk import one_line_when_full
from ntl.training.resume import base_for, checkpoint_for

PUBLISHED_AT_TINY = (
    "{name} is a published size: scale=paper is what it is for, and a *_tiny model is what scale=tiny is for."
)


def say(message: str) -> None:
    """A line for the person who watches, from the first rank only."""
    if int(os.environ.get("RANK", "0")) == 0:
        print(redact(message), flush=True)


def run(config: Config, overrides: Sequence[str] = ()) -> Path:
    """Prepare, train, decode, score and record; a run whose record exists is not repeated.

    Returns:
        The path of record.json.

    Raises:
        UserError: Something that the config names is missing or does not fit.
        Busy: Another process is at this run.
        Diverged: The loss became NaN or infinite.
        KeyboardInterrupt: After the checkpoint that Ctrl-C asks for.
    """
    folder = Path(config.output_dir) / run_id(config)
    record_path = folder / "record.json"
    if record_path.is_file():
        if not _lacking(record_path, config):
            return _already_finished(record_path, config)
    else:
        if config.model.pretrained or (source(config.model) and not config.tokenizer.path):
            require(source(config.model))
        if (config.model.hub_id or config.model.tokenizer_hub_id) and config.scale.name == "tiny":
            say(PUBLISHED_AT_TINY.format(name=config.model.name))
    with _only_one(folder):
        # Asked again: another process may have had the folder until now.
        if record_path.is_file():
            return _already_finished(record_path, config)
        checkpoint = checkpoint_for(config, folder, say)
        if config.base and not checkpoint:
            base_for(config)
        # Imported here: a mistake in the config must show before torch is loaded.
        from ntl.training.session import Session

        with one_line_when_full(folder):
            return Session(config, folder, overrides, say, checkpoint).run()


def _lacking(record_path: Path, config: Config) -> list[str]:
    return lacking_readings(read_record(record_path).config, plain(config.beside))


def remove_leftovers(folder: Path, keep: int) -> None:
    """Of a finished run's checkpoints delete what it was killed before it could: all but the newest ``keep``.

    Nothing is done, nor said, while another process is at the run, or where it cannot be written to.
    """
    checkpoints = folder / "checkpoints"
    # Counted first: which is the newest whole one takes reading it.
    if int(os.environ.get("RANK", "0")) == 0 and len(by_step(checkpoints)) > keep:
        with suppress(UserError), _only_one(folder):
            keep_newest(checkpoints, keep)


def _already_finished(record_path: Path, config: Config) -> Path:
    record = read_record(record_path)
    _check_data(record, record_path, config)
    _check_kept(record_path, config)
    remove_leftovers(record_path.parent, config.trainer.keep_checkpoints_after)
    if lacking := lacking_readings(record.config, plain(config.beside)):
        say(f"{record_path}: this run is finished; decoding it by {', '.join(lacking)}, too.")
        # Imported here, as torch comes with it.
        from ntl.training.again import add_readings

        with one_line_when_full(record_path.parent):
            add_readings(record_path, {name: config.beside[name] for name in lacking}, say)
        return record_path
    say(f"{record_path}: this run is finished already; remove its folder to repeat it.")
    decoded = record.config.get("decoding", {})
    if any(decoded.get(name) != value for name, value in plain(config.decoding).items()):
        say(f"It was decoded with {decoded}; `python scripts/predict.py {record_path.parent}` decodes it otherwise.")
    return record_path


def _check_data(record: RunRecord, record_path: Path, config: Config) -> None:
    """Raise ``UserError`` where the data is known to be other than the record's."""
    dataset: TextDataset = build(config.dataset)
    files = record.data.get("files")
    if isinstance(files, dict) and (changes := dataset.changes_since(files, config.data_dir)):
        raise UserError(
            f"{record_path}: this run is finished, but its data is not what is there now: {changes}; restore the data, "
            "or remove the run's folder to train it on what is there."
        )


def _check_kept(record_path: Path, config: Config) -> None:
    if gone := [step for step in config.keep_steps if not is_whole(checkpoint_at(record_path.parent, step))]:
        raise UserError(
            f"keep_steps={gone}: {record_path.parent} is finished, without a whole checkpoint of that; remove the "
            "folder, and the same command trains it again."
        )


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    # Ranks of one run share the lock that the first of them holds.
    if int(os.environ.get("RANK", "0")) != 0:
        yield
        return
    lock_path = folder.parent / f".{folder.name}.lock"
    with _held(lock_path, folder):
        try:
            yield
        finally:
            lock_path.unlink(missing_ok=True)


def _held(path: Path, folder: Path) -> IO[str]:
    while True:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("w")
        except OSError as error:
            raise UserError(f"output_dir={folder.parent}: {error.strerror}; choose another by output_dir=.") from error
        try:
            held = acquire(lock)
        except OSError as error:
            lock.close()
            raise UserError(f"{path}: cannot be locked ({error.strerror}); choose another by output_dir=.") from error
        if held is Lock.theirs:
            lock.close()
            raise Busy(f"{folder}: another process is at this run; wait for it, or change seed=.")
        if held is Lock.none:
            say(without_locks(folder.parent, "run", "output_dir"))
        if held is Lock.none or _is_same_file(lock, path):
            return lock
        # Its last owner deleted it between the two calls: a third process may hold the new one.
        lock.close()


def is_taken(folder: Path) -> bool:
    """Whether a process is at the run of this folder now; where there are no locks it cannot be told, and is False."""
    try:
        with (folder.parent / f".{folder.name}.lock").open() as lock:
            return acquire(lock) is Lock.theirs
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_same_file(lock: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock.fileno()), path.stat())
    except FileNotFoundError:
        return False
