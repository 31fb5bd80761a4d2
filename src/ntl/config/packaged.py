"""Schemas of the data sets for regression that are read from files of packages (``ntl.data.sets``)."""

from dataclasses import dataclass

from ntl.config.data import DatasetConfig
from ntl.config.settings import setting


@dataclass
class PackagedConfig(DatasetConfig):
    """Rows by split. What is no row for validation or test is for training."""

    train_rows: int = setting(0, "Train on the first so many rows; 0: on all.", unit="rows", min=0)
    validation_rows: int = setting(500, "Rows for validation, or a few more.", unit="rows", min=1)
    test_rows: int = setting(1_000, "Rows for the test, or a few more.", unit="rows", min=1)
    seed: int = setting(0, "Seed of the splits.", min=0, max=2**32 - 1)

    @property
    def is_computed(self) -> bool:
        return False


@dataclass
class MeltingPointsConfig(PackagedConfig):
    """Melting points of organic molecules, in whole kelvin: 90 to 766."""

    _target_: str = "ntl.data.sets.melting_points.MeltingPoints"
    name: str = "melting_points"
    text: str = setting(
        "name", "How a molecule is written: by its IUPAC name or as SMILES.", choices=("name", "smiles")
    )
    cut: int = setting(160, "A longer name or SMILES is cut after so many characters.", unit="characters", min=1)


@dataclass
class SentimentConfig(PackagedConfig):
    """Sentences and tweets, and how positive some twenty people find each, on average: -4.0 to 4.0."""

    _target_: str = "ntl.data.sets.sentiment.Sentiment"
    name: str = "sentiment"
    domain: str = setting(
        "all", "Which texts are taken.", choices=("all", "movies", "editorials", "tweets", "products")
    )
