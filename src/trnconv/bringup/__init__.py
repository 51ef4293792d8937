"""The ladder that a stranger with a device climbs: one question a rung, JSON to send back."""
