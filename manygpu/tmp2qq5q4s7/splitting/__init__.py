"""What the chapters in book/splitting built, exported from them."""
