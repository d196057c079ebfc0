"""The command line as its users see it: output, exit status, files."""
