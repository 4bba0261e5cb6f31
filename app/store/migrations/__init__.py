"""Schema revisions of chats.db, applied in process by app/store/schema.py."""
