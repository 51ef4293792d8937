"""The frames of a video as they are recorded: where each lies, and how one is made of them."""
