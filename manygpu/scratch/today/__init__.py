"""What the chapters in book/today built, exported from them."""
