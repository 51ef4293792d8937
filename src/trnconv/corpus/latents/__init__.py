"""From the frames of clips to the latents of a shard, and their files."""
