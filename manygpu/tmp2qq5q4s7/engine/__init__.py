"""What the chapters in book/engine built, exported from them."""
