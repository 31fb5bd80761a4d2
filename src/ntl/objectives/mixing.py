"""Pseudorandom numbers as a function of their place, not of how many were drawn before."""

import hashlib

import numpy as np

U64 = np.uint64
KEYS = 6  # as many as the rounds of the order of an epoch


def mix(values: np.ndarray) -> np.ndarray:
    """Apply the finalizer of splitmix64 (Steele, Lea and Flood 2014), a permutation of the 64-bit integers (uint64)."""
    values = values ^ (values >> U64(30))
    values *= U64(0xBF58476D1CE4E5B9)
    values ^= values >> U64(27)
    values *= U64(0x94D049BB133111EB)
    values ^= values >> U64(31)
    return values


def keys_of(*seeds: int | str) -> np.ndarray:
    """Return ``KEYS`` keys (uint64) that depend on the seeds alone."""
    digest = hashlib.blake2b(repr(seeds).encode(), digest_size=8 * KEYS).digest()
    return np.frombuffer(digest, dtype="<u8").astype(U64)
