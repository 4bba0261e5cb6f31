"""Who has said what so far, in tokens, and whose state is resident."""
