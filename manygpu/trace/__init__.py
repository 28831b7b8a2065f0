"""When pieces of work ran, and where tensors lay: spans, profiles, placements."""
