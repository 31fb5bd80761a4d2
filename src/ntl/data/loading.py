"""A data set by its name."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.config import build
from ntl.config.composition import SCHEMAS
from ntl.config.legality import nearest
from ntl.system.errors import UserError

if TYPE_CHECKING:
    import datasets

    from ntl.data.base import TextDataset

GROUP = "dataset/"


def dataset_named(name: str, **values: Any) -> "TextDataset":
    """The data set with its schema's defaults (the paper's sizes), some of them replaced: ``train_rows=1000``."""
    schemas = {path.removeprefix(GROUP): schema for path, schema in SCHEMAS.items() if path.startswith(GROUP)}
    if name not in schemas:
        raise UserError(f"no data set {name!r}; choose one of {', '.join(sorted(schemas))}.{nearest(name, schemas)}")
    try:
        return build(schemas[name](**values))
    except TypeError as error:
        raise UserError(f"data set {name!r}: {error}.") from error


def load_dataset(name: str, split: str, data_dir: Path | str | None = None) -> "datasets.Dataset":
    """A split as a ``datasets.Dataset`` with the columns id, question and answer, prepared on first use.

    ``data_dir`` is where prepared files are written, ``data`` when None. Whatever lies under the environment variable
    NTL_DATA_DIR, prepared or raw, is read and never written.
    """
    dataset = dataset_named(name)
    folder = Path("data") if data_dir is None else Path(data_dir)
    dataset.prepare(folder)
    return dataset.load(split, folder)
