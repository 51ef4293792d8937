"""The ladder that a stranger with a device climbs: one question a check, JSON to send back."""
