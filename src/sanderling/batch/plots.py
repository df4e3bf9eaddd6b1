"""
The plots of a report, as SVG without scripts. They need pygal, of the extra `sanderling[batch]`.

pygal's own page has scripts for its tooltips, and loads more of them from the network. They are removed, and the names of points become
titles, which browsers show as well.
"""

import sys
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from sanderling.batch.results import Result
from sanderling.batch.statistics import Rate, task_means
from sanderling.text import visible_line

WIDTH, HEIGHT, BAR_HEIGHT = 800, 360, 18
MAX_BARS = 200
MAX_NAME_CHARS = 40
SVG = "http://www.w3.org/2000/svg"


def can_plot() -> bool:
    from importlib.util import find_spec  # only for reports

    return find_spec("pygal") is not None


def rates(named: Sequence[tuple[str, Rate]]) -> str:
    """Return bars of shares, with their 95 % intervals."""
    chart = _chart("Bar", "rates", range=(0, 100), width=160 * (1 + len(named)))
    chart.x_labels = [f"{name}: {rate.share:.1%}" for name, rate in named]
    chart.value_formatter = _percent
    chart.add("", [_with_interval(rate) for _, rate in named])
    return _svg(chart)


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _with_interval(rate: Rate) -> dict[str, Any]:
    return {"value": 100 * rate.share, "ci": {"low": 100 * rate.low, "high": 100 * rate.high}}


def rewards_by_cost(results: Sequence[Result]) -> str:
    """Return a point for each trial with a reward and a known cost; "" without such a trial."""
    points = [
        {"value": (result.cost, result.reward), "label": _name(result.id)}
        for result in results
        if result.cost is not None and result.reward is not None
    ]
    if not points:
        return ""
    chart = _chart("XY", "costs", stroke=False, dots_size=4, x_title="Dollars", y_title="Reward")
    rewards = [point["value"][1] for point in points]
    chart.range = min(0.0, *rewards), max(1.0, *rewards)
    chart.add("", points)
    return _svg(chart)


def tokens_by_task(results: Sequence[Result]) -> str:
    """Return a bar for each task, the longest first."""
    tokens = {name: means.tokens for name, means in task_means(results).items()}
    ordered = sorted(tokens.items(), key=lambda item: item[1])[-MAX_BARS:]
    height = 60 + BAR_HEIGHT * len(ordered)
    chart = _chart("HorizontalBar", "tokens", height=height, print_values=True)
    chart.x_labels = [_name(name) for name, _ in ordered]
    chart.value_formatter = _count
    chart.add("", [round(count) for _, count in ordered])
    return _svg(chart)


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _name(task_id: str) -> str:
    return visible_line(task_id)[-MAX_NAME_CHARS:]


def _chart(kind: str, name: str, **options: Any) -> Any:
    import pygal  # pyright: ignore[reportMissingTypeStubs] - it has no types
    from pygal.style import Style  # pyright: ignore[reportMissingTypeStubs]

    # pygal adds a hook for its maps, of a form that Python 3.12 ignores, and that 3.11 warns of at each import. Others stay: importlib_metadata,
    # which pygal imports, replaces the standard library's.
    sys.meta_path[:] = [
        each for each in sys.meta_path if not isinstance(each, pygal.PluginImportFixer)
    ]
    style: Any = Style(
        background="transparent",
        plot_background="transparent",
        colors=("#3366cc",),
        foreground="#444",
        foreground_strong="#222",
        foreground_subtle="#888",
        opacity=".6",
        guide_stroke_color="#ddd",
        guide_stroke_dasharray="0",
        major_guide_stroke_color="#ddd",
        major_guide_stroke_dasharray="0",
        ci_colors=("#222222",),
        font_family="system-ui, sans-serif",
        label_font_size=12,
        major_label_font_size=12,
        value_font_size=12,
        title_font_size=12,
    )
    graph: Any = getattr(pygal, kind)
    size = {"width": WIDTH, "height": HEIGHT, "js": (), "show_legend": False, "explicit_size": True}
    chart = graph(**(size | {"style": style, "margin": 8, "no_data_text": ""} | options))
    chart.uuid = name  # otherwise a random one
    return chart


def _svg(chart: Any) -> str:
    root: ET.Element = chart.render_tree()
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("script", f"{{{SVG}}}script"):
                parent.remove(child)
            elif child.tag == "desc" and child.get("class") == "label":
                child.tag = "title"
    return ET.tostring(root, encoding="unicode")
