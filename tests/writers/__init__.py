"""Writers of bytes for the readers to read; they share no layout with them."""
