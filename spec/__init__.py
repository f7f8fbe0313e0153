"""What a training run is, told without any framework.

Standard library, NumPy, safetensors and ml_dtypes only. Nothing here knows how a step is computed; both sides
and the referee read this package, and this package reads nothing of theirs. `spec/README.md` is the guide.
"""
