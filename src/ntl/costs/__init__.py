"""What a step and a run take, before they are made: memory, hours, disk."""
