"""Clips in shards, and what is known of each shard: planned, done, again, damaged."""
