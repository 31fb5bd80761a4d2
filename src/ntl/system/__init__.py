"""The ground floor: errors, files, locks, the machine, the network. Knows nothing of models or numbers."""
