"""Long runs: are both sides' last losses equal within a margin that was stated beforehand?

Curves part by chaos, and no single pair of them says whether two right sides do equally well; many seeds do.
"""
