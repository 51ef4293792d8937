"""The ladder that a stranger with a device climbs: one problem a check, JSON to send back."""
