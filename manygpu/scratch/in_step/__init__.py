"""What the chapters in book/in-step built, exported from them."""
