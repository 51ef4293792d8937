"""Reports of modelled convolutions: what there is to say, apart from how it is shown."""
