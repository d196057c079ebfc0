"""Exit status of the commands."""

EXIT_WRONG_USE = 2
EXIT_INCONCLUSIVE = 3
EXIT_HARNESS = 70
