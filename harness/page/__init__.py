"""Pages to look at: one HTML file each, with everything in it; the film of a trace, the summary of a run."""
