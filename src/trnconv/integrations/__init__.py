"""Ways into other people's servers and pipelines. They need PyTorch."""
