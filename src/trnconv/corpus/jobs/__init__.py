"""One job on a corpus: what it asks for, and the processes that work on its shards."""
