"""The referee: starts both sides as processes of their own, reads what they wrote, judges, reports.

It imports `spec` and no framework, so that a saved run is judged on any machine. `cli` is the way in.
"""
