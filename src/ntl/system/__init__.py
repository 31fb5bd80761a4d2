"""Utilities that know nothing of models or numbers: errors, files, locks, the machine, the network."""
