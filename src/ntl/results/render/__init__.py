"""A table as text. Each module has ``render(table) -> str``; ``text`` has what their cells and legends say."""
