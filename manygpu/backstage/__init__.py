"""What pages use and don't show: how an experiment is set up, and how it is timed."""
