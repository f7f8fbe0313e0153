"""A small drawing of a captured graph: one lane for compute, one for communication, left to right in order.

A node stands at the length of the longest path that leads to it, so what stands in the same column may run at
the same time; a collective's bar spans the columns of the compute that is not ordered with it. Positions
are not times. Must not: need anything but the graph.
"""

from html import escape

from torch_impl.graph.nodes import GraphView

WIDTH, LANE_HEIGHT, MARGIN = 960, 46, 12
_COLOURS = {"kernel": "#4878a8", "collective": "#c8643c", "memset": "#989898", "memcpy": "#70905c"}


def draw(view: GraphView) -> str:
    """An SVG file as text."""
    levels = view.levels()
    scale = (WIDTH - 2 * MARGIN) / (max(levels, default=0) + 1)
    shapes = []
    for index, node in enumerate(view.nodes):
        if not node.is_collective:
            x, width = MARGIN + levels[index] * scale, max(0.6, scale * 0.8)
            shapes.append(_bar(x, 0, width, _COLOURS.get(node.kind, "#404040"), node.name or node.kind))
    for row in view.overlap():
        columns = [levels[i] for i in row["beside"]] + [levels[row["node"]]]
        x, width = MARGIN + min(columns) * scale, max(2.0, (max(columns) - min(columns) + 1) * scale)
        title = f"{row['name']}: may run beside {len(row['beside'])} compute kernels"
        shapes.append(_bar(x, 1, width, _COLOURS["collective"], title))
    height = 2 * LANE_HEIGHT + 3 * MARGIN
    caption = ", ".join(f"{count} {kind}" for kind, count in sorted(view.by_kind().items()))
    caption += f", {len(view.edges)} edges, {len(view.collectives)} collectives"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="11" '
            'font-family="sans-serif">',
            f'<text x="{MARGIN}" y="{MARGIN}">{escape(caption)}</text>',
            *shapes,
            "</svg>\n",
        ]
    )


def _bar(x: float, lane: int, width: float, colour: str, title: str) -> str:
    y = MARGIN + 6 + lane * LANE_HEIGHT
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE_HEIGHT - 10}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )
