"""The half of a worker that both sides share: what it writes down of a run, how it saves, resumes
and steps in lockstep.

Must not: know how a step is made. A side brings its trainer; `trainer.py` says what these files need of one.
"""
