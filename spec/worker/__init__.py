"""The half of a worker that both sides share: what it writes down of a run, how it saves and resumes.

Must not: train. A side brings its trainer; `trainer.py` here says what these files need of one.
"""
