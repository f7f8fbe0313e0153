"""Cluster: this host among those that run together."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """This host among those that run together."""

    nodes: int = 1
    node_rank: int = 0
    rendezvous: str | None = None
    """HOST:PORT on host 0; None on a single host, where a free port is found."""
