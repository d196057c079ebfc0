"""What is printed and written, as a whole."""
