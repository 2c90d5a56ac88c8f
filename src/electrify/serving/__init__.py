"""`electrify serve`: models over HTTP, with a page."""
