"""Draws a timeline as a space-time diagram: one SVG file that stands alone, in light and in dark."""

from collections.abc import Iterable
from xml.sax.saxutils import escape

from clients.demo.layout import LABEL_LINE, Label, Layout, PlacedMark, PlacedPost, lay_out
from clients.demo.timeline import MarkKind, PostKind, Span, SpanKind, Timeline

__all__ = ["draw"]

_WIDTH = 1080
_LANES_X = (345, 540, 735)
_LABEL_OFFSET = 20
_TIME_X = 26
_HEAD_Y = 92
_LEGEND_HEIGHT = 74

_STYLE = """
.card{fill:#ffffff;stroke:#d0d7de}.ink{fill:#1f2328}.dim{fill:#656d76}
text{font-family:-apple-system,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif;font-size:12.5px}
.title{font-size:20px;font-weight:600}.lane-name{font-size:14px;font-weight:600;text-anchor:middle}
.time{font-size:11px;font-variant-numeric:tabular-nums}.end{text-anchor:end}
.strong{font-weight:600}.gone{stroke:#8c959f;stroke-width:1.5;stroke-dasharray:1 6;stroke-linecap:round}
.lane{stroke-width:3.5;stroke-linecap:round}.rule{stroke:#d8dee4}
.l0{stroke:#0969da}.l1{stroke:#57606a}.l2{stroke:#8250df}.f0{fill:#0969da}.f1{fill:#57606a}.f2{fill:#8250df}
.arrow{fill:none;stroke-width:1.2;opacity:.75}.strong-arrow{fill:none;stroke-width:2.2}
.spell{fill:#d4a72c;fill-opacity:.22;stroke:#bf8700;stroke-dasharray:4 3}
.red{fill:#cf222e}.red-line{stroke:#cf222e}.green{fill:#1a7f37}.green-line{stroke:#1a7f37}
.tool{fill:#ffffff;stroke-width:2}.cross{stroke:#cf222e;stroke-width:4;stroke-linecap:round}
@media (prefers-color-scheme:dark){
.card{fill:#0d1117;stroke:#30363d}.ink{fill:#e6edf3}.dim{fill:#8b949e}.rule{stroke:#262c36}
.gone{stroke:#6e7681}.l0{stroke:#4493f8}.l1{stroke:#8b949e}.l2{stroke:#ab7df8}
.f0{fill:#4493f8}.f1{fill:#8b949e}.f2{fill:#ab7df8}
.spell{fill:#d29922;fill-opacity:.2;stroke:#bb8009}
.red{fill:#f85149}.red-line,.cross{stroke:#f85149}.green{fill:#3fb950}.green-line{stroke:#3fb950}
.tool{fill:#0d1117}}
"""

_SMALL_PRINT = (
    "#n is an entry's place in the relay's log. Pauses are shortened. The logs tell when an entry was written; "
    "its arrival is drawn as early as they allow."
)
_STRONG_TONES = {
    MarkKind.KILLED.value: "red strong",
    MarkKind.CONFLICT.value: "red strong",
    PostKind.COMPETING.value: "red",
    PostKind.RESOLVING.value: "green strong",
    MarkKind.QUESTION.value: "ink strong",
}


def draw(timeline: Timeline) -> str:
    """Return the SVG text of a timeline; drawing the same timeline twice gives the same text."""
    layout = lay_out(timeline)
    height = round(layout.bottom) + _LEGEND_HEIGHT + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(timeline.title)}</title><desc id="d">{escape(timeline.subtitle)}</desc>',
        f"<style>{_STYLE}</style>",
        _markers(),
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="12"/>',
        _text(_TIME_X, 38, timeline.title, "ink title"),
        _text(_TIME_X, 60, timeline.subtitle, "dim"),
        *_lanes(timeline, layout),
        *(_spell(span, timeline, layout) for span in timeline.spans if span.kind is SpanKind.OFFLINE),
        *(part for placed in layout.posts for part in _arrows(placed, timeline)),
        *(_mark(placed, timeline) for placed in layout.marks),
        *(part for label in layout.labels for part in _label(label, timeline, layout)),
        *_legend(layout.bottom + 24),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _markers() -> str:
    heads = {"h0": "f0", "h1": "f1", "h2": "f2", "hred": "red", "hgreen": "green"}
    shapes = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{fill}" d="M0 .8 8 4 0 7.2z"/></marker>'
        for name, fill in heads.items()
    )
    return f"<defs>{shapes}</defs>"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, more: str = "") -> str:
    return f'<line x1="{x1:g}" y1="{y1:.1f}" x2="{x2:g}" y2="{y2:.1f}" class="{kind}"{more}/>'


def _x(timeline: Timeline, lane: str) -> int:
    return _LANES_X[timeline.lanes.index(lane)]


def _lanes(timeline: Timeline, layout: Layout) -> Iterable[str]:
    """The lanes' names, a faint dotted line all the way down, and a solid one wherever a process ran."""
    for index, lane in enumerate(timeline.lanes):
        x = _LANES_X[index]
        yield _text(x, _HEAD_Y, lane, f"lane-name f{index}")
        yield _line(x, _HEAD_Y + 12, x, layout.bottom, "gone")
    for span in timeline.spans:
        x = _x(timeline, span.lane)
        kind = f"lane l{timeline.lanes.index(span.lane)}"
        top, bottom = _ends(span, layout)
        yield _line(x, top, x, bottom, kind)


def _ends(span: Span, layout: Layout) -> tuple[float, float]:
    return layout.height_at(span.lane, span.from_ms), layout.height_at(span.lane, span.to_ms)


def _spell(span: Span, timeline: Timeline, layout: Layout) -> str:
    x = _x(timeline, span.lane)
    top, bottom = _ends(span, layout)
    return f'<rect class="spell" x="{x - 12}" y="{top:.1f}" width="24" height="{bottom - top:.1f}" rx="6"/>'


def _arrows(placed: PlacedPost, timeline: Timeline) -> Iterable[str]:
    """From the writer's lane to the relay's, and from there to each reader's; a dot where the entry was written."""
    post = placed.post
    lane = timeline.lanes.index(post.device)
    colour, head = {
        PostKind.PLAIN: (f"l{lane}", f"h{lane}"),
        PostKind.COMPETING: ("red-line", "hred"),
        PostKind.RESOLVING: ("green-line", "hgreen"),
    }[post.kind]
    weight = "arrow" if post.kind is PostKind.PLAIN else "strong-arrow"
    x, relay_x = _x(timeline, post.device), _LANES_X[1]
    more = f' marker-end="url(#{head})"'
    yield _arrow(x, placed.written_y, relay_x, placed.stored_y, f"{weight} {colour}", more)
    for device, y in placed.arrivals:
        yield _arrow(relay_x, placed.stored_y, _x(timeline, device), y, f"{weight} {colour}", more)
    fill = {PostKind.PLAIN: f"f{lane}", PostKind.COMPETING: "red", PostKind.RESOLVING: "green"}[post.kind]
    yield f'<circle class="{fill}" cx="{x}" cy="{placed.written_y:.1f}" r="3"/>'


def _arrow(x1: float, y1: float, x2: float, y2: float, kind: str, more: str) -> str:
    """A line that stops short of the lane that it points to, so that the lane stays visible."""
    side = 1 if x2 > x1 else -1
    return _line(x1 + 3 * side, y1, x2 - 4 * side, y2, kind, more)


def _mark(placed: PlacedMark, timeline: Timeline) -> str:
    x, y = _x(timeline, placed.mark.lane), placed.y
    lane = timeline.lanes.index(placed.mark.lane)
    if placed.mark.kind is MarkKind.KILLED:
        return f'<path class="cross" d="M{x - 8} {y - 8:.1f}l16 16m0-16-16 16"/>'
    if placed.mark.kind is MarkKind.CONFLICT:
        return f'<path class="red" d="M{x} {y - 9:.1f}l9 9-9 9-9-9z"/>'
    if placed.mark.kind is MarkKind.RAN:
        return f'<rect class="tool l{lane}" x="{x - 5}" y="{y - 5:.1f}" width="10" height="10" rx="2"/>'
    if placed.mark.kind in (MarkKind.QUESTION, MarkKind.ANSWER):
        return f'<circle class="tool l{lane}" cx="{x}" cy="{y:.1f}" r="5"/>'
    return _line(x - 8, y, x + 8, y, f"lane l{lane}")


def _label(label: Label, timeline: Timeline, layout: Layout) -> Iterable[str]:
    """The text outside its lane and the time at the picture's edge; a faint rule ties them together."""
    x = _x(timeline, label.lane)
    left = x <= _LANES_X[0]
    kind = _STRONG_TONES.get(label.tone, "ink")
    text_x = x - _LABEL_OFFSET if left else x + _LABEL_OFFSET
    for number, line in enumerate(label.lines):
        yield _text(text_x, round(label.y + 4.5 + number * LABEL_LINE, 1), line, f"{kind} end" if left else kind)
    seconds = f"{(label.at_ms - layout.start_ms) / 1000:.2f} s"
    time_x = _TIME_X if left else _WIDTH - _TIME_X
    yield _text(time_x, round(label.y + 4.5, 1), seconds, "dim time" if left else "dim time end")


def _legend(y: float) -> Iterable[str]:
    yield f'<line class="rule" x1="{_TIME_X}" y1="{y:.1f}" x2="{_WIDTH - _TIME_X}" y2="{y:.1f}"/>'
    row = y + 26
    yield _line(30, row - 4, 52, row - 4, "lane l0")
    yield _text(60, row, "process runs", "dim")
    yield _line(160, row - 4, 184, row - 4, "gone")
    yield _text(192, row, "no process", "dim")
    yield f'<rect class="spell" x="282" y="{row - 12:.1f}" width="22" height="15" rx="4"/>'
    yield _text(312, row, "offline", "dim")
    yield _line(380, row - 8, 404, row - 1, "arrow l0", ' marker-end="url(#h0)"')
    yield _text(412, row, "an entry on its way", "dim")
    yield f'<rect class="tool l0" x="552" y="{row - 9:.1f}" width="10" height="10" rx="2"/>'
    yield _text(570, row, "a tool really ran", "dim")
    yield f'<path class="red" d="M690 {row - 12:.1f}l8 8-8 8-8-8z"/>'
    yield _text(706, row, "conflict shown", "dim")
    yield _line(808, row - 8, 832, row - 1, "strong-arrow green-line", ' marker-end="url(#hgreen)"')
    yield _text(840, row, "the entry that resolved it", "dim")
    yield _text(_TIME_X, row + 26, _SMALL_PRINT, "dim")
