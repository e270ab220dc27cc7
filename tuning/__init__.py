"""Finding the best schedule: building, running, checking, searching, and the database of what was found."""
