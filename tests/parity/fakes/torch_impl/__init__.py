"""Stands in for the side of this name in tests of the referee."""
