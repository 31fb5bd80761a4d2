"""The data sets: one file each, a subclass of ``TextDataset`` that says how its rows are made."""
