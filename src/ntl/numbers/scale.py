"""The signed logarithm, which is the scale of the errors in the paper's Table 1."""

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import numpy as np


@overload
def signed_log(x: float) -> float: ...
@overload
def signed_log(x: "np.ndarray") -> "np.ndarray": ...
def signed_log(x: "float | np.ndarray") -> "float | np.ndarray":
    """Return sign(x) · log10(|x| + 1), elementwise: an odd, increasing function, 0 at 0 and 1 at 9."""
    import numpy as np

    x = np.asarray(x, dtype=np.float64)
    return (np.sign(x) * np.log10(np.abs(x) + 1))[()]


@overload
def signed_exp(y: float) -> float: ...
@overload
def signed_exp(y: "np.ndarray") -> "np.ndarray": ...
def signed_exp(y: "float | np.ndarray") -> "float | np.ndarray":
    """Return sign(y) · (10^|y| − 1), elementwise: the inverse of `signed_log`."""
    import numpy as np

    y = np.asarray(y, dtype=np.float64)
    return (np.sign(y) * (10 ** np.abs(y) - 1))[()]
