"""What serves those who make the book: see README.md."""
