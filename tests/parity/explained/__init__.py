"""Pairs whose sides are the same or clash on purpose, and searches for what was planted in them."""
