"""Training and evaluation with the Number Token Loss (Zausinger et al., ICML 2025, arXiv 2411.02083)."""

__version__ = "0.1.0"
