"""What the chapters in book/start built, exported from them."""
