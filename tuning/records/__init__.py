"""Records: what a trial is remembered by, and the databases and files that hold them."""
