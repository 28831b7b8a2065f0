"""Training scripts with two bugs each: copy one, find both, mend it."""
