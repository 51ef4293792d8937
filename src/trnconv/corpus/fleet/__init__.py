"""How many machines a corpus needs, and of which kind."""
