"""The frames of a video as they are noted: where each lies, and how one is made of them."""
