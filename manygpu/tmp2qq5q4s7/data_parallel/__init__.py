"""What the chapters in book/data-parallel built, exported from them."""
