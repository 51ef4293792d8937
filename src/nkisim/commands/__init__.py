"""`python -m nkisim run | time | trace`: commands on a kernel, the user's own or an example."""
