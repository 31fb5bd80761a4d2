"""A finished run read by further decodings."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ntl.config import DecodingConfig
from ntl.config.identity import plain
from ntl.results import read_record, write_record
from ntl.training.prediction import decode_beside, forget_answers
from ntl.training.restore import restore
from ntl.training.session import Say


def add_readings(record_path: Path, readings: Mapping[str, DecodingConfig], say: Say = print) -> None:
    """Decode a finished run's newest checkpoint by ``readings`` and add their scores to its record.

    The caller holds the run's lock: between reading and writing no other process may change the record.

    UserError: no whole checkpoint is left.
    """
    session, _ = restore(record_path.parent, say=say)
    session.config.beside = dict(readings)
    record = read_record(record_path)
    config = {**record.config, "beside": {**record.config.get("beside", {}), **plain(dict(readings))}}
    metrics = {**record.metrics, **decode_beside(session, list(readings))}
    forget_answers(record_path.parent)
    write_record(record_path, replace(record, config=config, metrics=metrics), overwrite=True)
