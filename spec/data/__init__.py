"""Where rows come from: text, token shards, synthetic rows, batches written before.

`batches` is the door (`open_source`, rank and micro-batch slices, digests). `text` and `shards` are streams
of tokens that `rows` cuts rows from; `synthetic` makes rows of numbers; `folder` writes batches down and
reads them back; `prepare` makes a shard out of a text.

Row i of global batch s is a function of (seed, s, i), at any number of processes and in any order of calls.
"""
