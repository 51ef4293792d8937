"""What the checks ask of a source: its names, their kinds, definitions and bodies of loops."""
