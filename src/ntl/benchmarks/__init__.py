"""Speed and memory, measured side by side in one run: what `scripts/benchmark_*.py` call."""
