"""What pages use and don't show: how the processes of an experiment are set up."""
