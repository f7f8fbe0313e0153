"""Speed: raw samples of time passes become figures, and two sides' figures a verdict."""
