"""What the chapters in book/beyond built, exported from them."""
