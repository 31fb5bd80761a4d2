"""The schemas of a run and the rules for its settings. Nothing here imports torch."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.config.composition import compose as compose
    from ntl.config.decoding import DecodingConfig as DecodingConfig
    from ntl.config.identity import run_id as run_id
    from ntl.config.root import Config as Config
    from ntl.config.root import DatasetConfig as DatasetConfig
    from ntl.config.settings import setting as setting
    from ntl.config.targets import build as build
    from ntl.config.trainer import TrainerConfig as TrainerConfig
    from ntl.config.validation import validate as validate
    from ntl.system.errors import Diverged as Diverged
    from ntl.system.errors import UserError as UserError

__getattr__, __all__ = exports(__name__, __file__)
