"""One file per revision; REVISIONS in app/store/schema.py lists them in order."""
