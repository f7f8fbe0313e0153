"""Pictures of numbers as SVG text: curves, samples, bars and timelines, made of a few small pure functions.

Every picture carries a title and a description in words, uses classes of the page's style sheet for colour,
and tells its parts apart by place, line style or marker as well. Must not: read files, or know what a run is.
"""
