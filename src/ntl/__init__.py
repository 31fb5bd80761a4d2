"""Training and evaluation with the Number Token Loss (Zausinger et al., ICML 2025, arXiv 2411.02083)."""

__version__ = "0.1.0"

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.losses import NumberTokenLoss as NumberTokenLoss
    from ntl.regressor import NumberRegressor as NumberRegressor

__getattr__, __all__ = exports(__name__, __file__)
