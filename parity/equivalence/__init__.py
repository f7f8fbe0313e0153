"""Long runs: are both sides' last losses equal within a margin that was stated beforehand?"""
