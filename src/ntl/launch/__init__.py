"""The missing runs of tables: found, and trained in several worker processes or by a launcher of Hydra."""
