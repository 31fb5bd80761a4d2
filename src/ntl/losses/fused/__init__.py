"""Base and number losses computed together with their gradient: the loss terms as data, and their implementations."""
