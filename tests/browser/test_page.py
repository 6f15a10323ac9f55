"""The HTML report in a real browser: what a person sees, clicks, types and hovers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from html_page import MISSPELT, SUMS, analysed, invalid, observed, page_of
from judging import writing
from msgspec.structs import replace

from torch_scenarios.report.html.page import changes, compare_pages, content_of
from torch_scenarios.vocabulary import DIAGNOSES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    Open = Callable[[str], Page]

#: the red, green, blue and alpha of points of the canvas
COLORS = """(points) => {
  const { canvas, ratio } = page.diagram;
  const corner = canvas.getBoundingClientRect();
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d", { willReadFrequently: true });
  page.diagram.draw();
  context.drawImage(canvas, 0, 0);
  return points.map(([x, y]) => [
    ...context.getImageData((x - corner.left) * ratio, (y - corner.top) * ratio, 1, 1).data,
  ]);
}"""


def choose(page: Page, case: str) -> None:
    page.locator("#list .option", has=page.locator(".name", has_text=case)).click()


def place(page: Page, lane: int, position: int) -> dict[str, float]:
    found: dict[str, float] = page.evaluate(
        "(at) => page.diagram.placeOf(at)", {"lane": lane, "position": position}
    )
    return found


def over(page: Page, lane: int, position: int) -> tuple[float, float]:
    """Return a point inside a span that no word, arrow or ring covers."""
    box = place(page, lane, position)
    return box["x"] + box["w"] - 14, box["y"] + box["h"] - 7


def lit(page: Page) -> list[str]:
    return page.locator("#source .line.lit .number").all_inner_texts()


def told(page: Page) -> str:
    return page.locator("#told").text_content() or ""


# ---------------------------------------------------------------------------- the list


def test_failures_come_first_and_the_first_is_open(open_page: Open, run: str) -> None:
    page = open_page(run)
    names = page.locator("#list .option .name").all_text_contents()
    assert names[-1] == "passes"
    assert page.locator("#title h2").inner_text() == names[0] == "ring"
    assert page.locator("#summary").inner_text() == "1 passed, 5 failed in 1.50 s"
    assert page.title().startswith("1 passed, 5 failed")


def test_text_filters_the_list(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.locator("#filter").fill("wrong")
    assert page.locator("#list .option .name").all_text_contents() == ["wrong_sum"]
    page.locator("#filter").fill("circular_wait")
    assert page.locator("#list .option .name").all_text_contents() == ["ring"]
    page.locator("#filter").fill("no such thing")
    assert page.locator("#list").inner_text() == "No case matches."


def test_a_verdict_filters_the_list(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.locator(".chip.PASSED").click()
    assert page.locator("#list .option .name").all_text_contents() == ["passes"]
    assert page.locator(".chip.FAILED").get_attribute("aria-pressed") == "false"
    page.locator(".chip.PASSED").click()
    assert page.locator("#list .option").count() == 6


def test_the_address_names_the_case(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "crash")
    assert page.url.endswith("crash%2Fjudged.yaml%3A%3Acrash")
    page.reload()
    page.wait_for_function("window.page")
    assert page.locator("#title h2").inner_text() == "crash"


# ---------------------------------------------------------------------------- what is told


def test_findings_stand_as_the_terminal_tells_them(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "wrong_sum")
    words = page.locator("pre.told").inner_text()
    assert "your expectation is wrong: x differs in 2 of 2 elements" in words
    assert "rank │   [0]    [1]" in words
    assert "all ranks │ 10≠20  10≠20" in words
    assert lit(page) == ["11", "12", "13", "14"]
    assert "".join(page.locator("#source .mark").all_inner_texts()) == "[10, 10]"
    assert page.locator("#held .differs .now").all_inner_texts() == ["[20, 20]"] * 4


def test_a_heading_that_the_terminal_breaks_is_one_line_of_the_page(
    open_page: Open, tmp_path: Path
) -> None:
    name = "gradients_of_the_first_layer_of_all"
    long = (
        SUMS.replace("[20, 20]", "[10, 10]").replace("x:", f"{name}:").replace(": x", f": {name}")
    )
    page = open_page(page_of(analysed(long, tmp_path, "long")))
    headings = page.locator("pre.told .strong").all_inner_texts()
    assert len(headings) == 1
    assert headings[0].endswith("differs in 2 of 2 elements on ranks 0, 1, 2 and 3")


def test_a_screen_reader_hears_what_is_seen(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "wrong_sum")
    assert all(page.locator("#held th").all_inner_texts())
    option = page.locator("#list .option", has=page.locator(".name", has_text="wrong_sum"))
    heard = option.get_attribute("aria-label") or ""
    assert heard.startswith("FAILED: ")
    for seen in option.locator(".words > *").all_text_contents():
        assert seen in heard


def test_a_deadlock_is_told_drawn_and_explained(open_page: Open, run: str) -> None:
    page = open_page(run)
    assert "rank 3 waits in `send to 0`" in page.locator("pre.told").inner_text()
    assert page.locator("#outcome").inner_text() == "deadlock"
    assert told(page).splitlines()[1:] == [
        "stuck",
        "waits for rank 1 to receive",
        DIAGNOSES["circular_wait"],
    ]
    box = place(page, 0, 1)
    (color,) = page.evaluate(COLORS, [[box["x"] + box["w"] / 2, box["y"] + 4]])
    red, green, blue, _ = color
    assert red > 20 + max(green, blue)
    explanation = page.locator(".diagnosis details").first
    explanation.locator("summary").click()
    assert "break the ring" in explanation.inner_text()


def test_the_cycle_is_drawn_beside_the_stuck_ranks(open_page: Open, run: str) -> None:
    page = open_page(run)
    corner = page.evaluate(
        "() => { const c = page.diagram.canvas.getBoundingClientRect();"
        " return [c.left + page.diagram.geometry.end, c.top]; }"
    )
    points = [(corner[0] + x, corner[1] + y) for x in range(10, 100, 2) for y in range(10, 200, 6)]
    colors = page.evaluate(COLORS, points)
    reds = sum(alpha > 100 and red > 150 > green for red, green, _, alpha in colors)
    assert reds > 20


def test_a_rank_that_does_not_come_leaves_an_empty_place(open_page: Open, tmp_path: Path) -> None:
    text = """\
world_size: 3
tensors:
  x: [1]
steps:
  - ranks: [0, 2]
    all_reduce: {tensor: x}
"""
    page = open_page(page_of(analysed(text, tmp_path, "missing")))
    words = "() => [...page.diagram.painter.words.keys()].map((key) => key.split('|').pop())"
    page.evaluate("page.diagram.draw()")
    assert "missing" in page.evaluate(words)
    assert "waits for rank 1" in told(page)


def test_who_died_is_shown_first(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "crash")
    assert told(page).splitlines()[0] == "rank 1: fault exit"
    assert page.locator("#outcome").inner_text() == "crash"
    assert "died: exit 1" in page.locator("#held tr.chosen").inner_text()


def test_an_invalid_file_shows_what_is_wrong_where(open_page: Open, tmp_path: Path) -> None:
    page = open_page(page_of(invalid(MISSPELT, tmp_path, "misspelt")))
    assert page.locator("#title .verdict").inner_text().endswith("INVALID")
    assert "unknown argument `tensr`" in page.locator("pre.told").inner_text()
    assert page.locator("#source .mark").inner_text() == "tensr"
    assert page.locator("#picture").is_hidden()


# ---------------------------------------------------------------------------- the diagram


def test_hovering_a_span_lights_its_lines(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.mouse.move(*over(page, 2, 0))
    assert lit(page) == ["7", "8"]
    assert page.locator("#tip").inner_text().splitlines()[0] == "rank 2: share"
    assert page.locator("#held h3").inner_text() == "share"
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()
    assert lit(page) == ["9"]


def test_a_rank_is_named_with_its_host(open_page: Open, tmp_path: Path) -> None:
    text = "world_size: 2\ntensors: {x: [1]}\nsteps: [{all_reduce: {tensor: x}}]\n"
    two_hosts = partial(replace, hosts={0: "node0", 1: "node1"})
    page = open_page(page_of(observed(text, tmp_path, "two_hosts", two_hosts)))
    page.mouse.move(*over(page, 1, 0))
    assert page.locator("#tip").inner_text().splitlines()[0] == "rank 1 on node1: all_reduce"


def test_hovering_a_line_lights_its_spans(open_page: Open, run: str) -> None:
    page = open_page(run)
    point = over(page, 2, 0)
    before = page.evaluate(COLORS, [point])
    page.locator("#source .line", has_text="all_reduce").hover()
    assert page.evaluate(COLORS, [point]) != before
    assert page.evaluate("page.diagram.lit.line") == 8


def test_a_click_pins_a_span_and_shows_tensors_before_and_after(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "wrong_sum")
    page.mouse.click(*over(page, 1, 0))
    page.mouse.move(5, 5)
    assert page.locator("#held h3").inner_text() == "all_reduce on odd"
    assert page.locator("#held tr.chosen .value").inner_text() == "[2, 2]→[6, 6]"
    rows = page.locator("#held tbody tr").all_inner_texts()
    assert len(rows) == 4
    assert "all_reduce on even" in rows[0]
    page.locator("#held tbody tr").nth(3).click()
    assert told(page).splitlines()[0] == "rank 3: all_reduce on odd"


def test_a_click_on_a_line_goes_to_its_step(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.locator("#source .line", has_text="all_reduce").click()
    assert told(page).splitlines()[0] == "rank 0: share"


def test_prediction_and_observation_are_switched(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "deviates")
    radios = page.locator("#witness [role=radio]")
    assert radios.nth(1).get_attribute("aria-checked") == "true"
    chosen = page.locator("#held tr.chosen .value")
    assert chosen.inner_text().split("\n") == ["[6, 6]→[20, 7]", "predicted: [20, 20]"]
    radios.nth(0).click()
    assert chosen.inner_text().split("\n") == ["[6, 6]→[20, 20]", "observed: [20, 7]"]
    page.keyboard.press("ArrowRight")
    assert radios.nth(1).get_attribute("aria-checked") == "true"
    choose(page, "ring")
    assert radios.nth(1).is_disabled()


def test_the_first_divergence_is_a_click_or_a_key_away(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "passes")
    assert page.locator("#divergence").is_hidden()
    choose(page, "deviates")
    page.locator("#witness [role=radio]").nth(0).click()
    page.locator("#held tbody tr").nth(0).click()
    page.locator("#divergence").click()
    chosen = page.locator("#held tr.chosen .value")
    assert chosen.inner_text().split("\n") == ["[6, 6]→[20, 7]", "predicted: [20, 20]"]
    choose(page, "hangs")
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    assert "predicted to end, and stuck" in told(page)


def test_a_comparison_shows_what_changed(open_page: Open, run: str, tmp_path: Path) -> None:
    before, after = tmp_path / "before.html", tmp_path / "after.html"
    before.write_text(page_of(observed(SUMS, tmp_path, "one"), observed(SUMS, tmp_path, "two")))
    changed = observed(SUMS, tmp_path, "one", writing(2, 3, "x", [20, 7]))
    after.write_text(page_of(changed, observed(SUMS, tmp_path, "two")))
    old, new = content_of(str(before)), content_of(str(after))
    page = open_page(compare_pages(old, new, changes(old, new)))
    assert page.locator(".against").all_inner_texts()[1] == "1 case changed"
    assert (
        "rank 3: after sum of all x was [20, 20], is [20, 7]"
        in page.locator(".changes").inner_text()
    )
    assert page.locator("#list .option").count() == 2
    page.locator(".chip.changed").click()
    assert page.locator("#list .option .name").all_text_contents() == ["one"]


def test_a_rank_that_only_the_run_leaves_hanging_is_red(open_page: Open, run: str) -> None:
    page = open_page(run)
    choose(page, "hangs")
    assert told(page).splitlines()[0] == "rank 1: sum of all"
    page.keyboard.press("o")
    assert "stuck" not in told(page)


# ---------------------------------------------------------------------------- the keyboard


def test_everything_is_reached_by_keys(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.keyboard.press("j")
    assert page.locator("#title h2").inner_text() == "wrong_sum"
    page.keyboard.press("k")
    assert page.locator("#title h2").inner_text() == "ring"
    page.keyboard.press("/")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    assert page.locator("#title h2").inner_text() == "wrong_sum"
    page.keyboard.press("d")
    for key, words in (
        ("Home", "rank 0: all_reduce on even"),
        ("ArrowDown", "rank 1: all_reduce on odd"),
        ("ArrowRight", "rank 1: sum of all"),
        ("ArrowUp", "rank 0: sum of all"),
    ):
        page.keyboard.press(key)
        assert told(page).splitlines()[0] == words
    page.keyboard.press("Escape")
    assert page.evaluate("page.pinned") is None


def test_the_focus_is_seen_and_lines_are_reached(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.locator("#source .line.start").first.focus()
    assert page.evaluate("page.diagram.lit.line") == 8
    page.keyboard.press("ArrowDown")
    assert page.evaluate("page.diagram.lit.line") == 9
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    assert told(page).splitlines()[0] == "rank 0: send to 1"


def test_keys_are_explained(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.keyboard.press("?")
    assert "predicted or observed" in page.locator("dialog[open]").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


# ---------------------------------------------------------------------------- size, light, paper


def test_zooming_keeps_what_is_under_the_pointer(open_page: Open, run: str) -> None:
    page = open_page(run)
    before = place(page, 0, 0)["w"]
    page.keyboard.press("+")
    assert place(page, 0, 0)["w"] > before
    page.keyboard.press("0")
    whole: list[float] = page.evaluate(
        "() => [page.diagram.geometry.width, page.diagram.scroll.clientWidth]"
    )
    assert whole[0] <= whole[1] + 1


AFAR = """\
world_size: 3
tensors: {x: [1], y: [0]}
steps:
  - compute: {y: "x + 1"}
  - {ranks: 0, send: {tensor: x, dst: 1}}
  - {ranks: 1, recv: {tensor: y, src: 0}}
  - compute: {y: "y * 2"}
  - {ranks: 2, recv: {tensor: y, src: 0}}
"""

#: the colour of every call, where columns are so wide
COLOURS = """(column) => {
  const { diagram } = page;
  const { geometry, timeline } = diagram;
  Object.assign(geometry, { column, lane: 26 });
  diagram.layout();
  diagram.draw();
  const { base } = diagram.painter;
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [base.width, base.height];
  const brush = copy.getContext("2d", { willReadFrequently: true });
  brush.drawImage(base, 0, 0);
  const colour = (at, lane) =>
    brush.getImageData(geometry.x(at) + 0.6 * column, geometry.y(lane) + 6, 1, 1).data.join();
  return timeline.lanes.map((row, lane) => Array.from(row.column, (at) => colour(at, lane)));
}"""


def test_a_call_has_the_same_colour_from_afar(open_page: Open, tmp_path: Path) -> None:
    page = open_page(page_of(analysed(AFAR, tmp_path, "afar")))
    near, far = page.evaluate(COLOURS, 6), page.evaluate(COLOURS, 3)  # a block each; a pixel each
    assert far == near
    assert len({colour for lane in far for colour in lane}) == 3  # local, message, stuck


def test_light_and_dark_follow_the_system_and_the_switch(open_page: Open, run: str) -> None:
    page = open_page(run)

    def ground() -> Any:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = ground()
    page.keyboard.press("t")
    dark = ground()
    assert dark != light
    page.emulate_media(color_scheme="dark")
    page.evaluate("delete document.documentElement.dataset.theme")
    assert ground() == dark
    page.keyboard.press("t")
    assert ground() == light


def test_paper_shows_the_whole_and_is_light(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.keyboard.press("t")
    page.emulate_media(media="print")
    page.evaluate("page.print(true)")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#list").is_hidden()
    assert page.locator("#source").is_visible()
    page.evaluate("page.print(false)")
    page.emulate_media(media="screen")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


def test_a_narrow_window_scrolls_in_one_direction(open_page: Open, run: str) -> None:
    page = open_page(run)
    page.set_viewport_size({"width": 400, "height": 800})
    sizes: list[int] = page.evaluate(
        "() => [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert sizes[0] <= sizes[1]


def test_sixty_four_ranks_draw_only_what_is_seen(open_page: Open, tmp_path: Path) -> None:
    text = """\
world_size: 64
tensors:
  x: "full(2, rank)"
steps:
  - for: {i: range(60)}
    steps:
      - all_reduce: {tensor: x, op: max}
      - compute: {x: x + i}
"""
    page = open_page(page_of(observed(text, tmp_path, "wide")))
    page.keyboard.press("d")
    page.keyboard.press("End")
    assert told(page).splitlines()[0] == "rank 0: compute (iteration 59)"
    assert page.evaluate("page.diagram.scroll.scrollLeft") > 1000
    drawn: int = page.evaluate(
        "() => { let count = 0; const { painter } = page.diagram; painter.drawn = null;"
        " painter.text = () => { count += 1; }; page.diagram.draw();"
        " delete painter.text; return count; }"
    )
    assert 0 < drawn < 64 * 20


# ---------------------------------------------------------------------------- many ranks

MANY = """\
world_size: 64
groups:
  even: "range(0, world_size, 2)"
  odd: "range(1, world_size, 2)"
tensors:
  x: "full(2, rank)"
steps:
  - all_reduce: {tensor: x, group: even}
  - all_reduce: {tensor: x, group: odd}
    ranks: "rank != 33"
  - name: all of them
    all_reduce: {tensor: x}
"""


def lanes(page: Page) -> list[list[int]]:
    """Return the ranks of each lane."""
    found: list[list[int]] = page.evaluate(
        "page.diagram.timeline.lanes.map((lane) => lane.members || [lane.rank])"
    )
    return found


def test_equal_ranks_are_one_lane(open_page: Open, tmp_path: Path) -> None:
    page = open_page(page_of(analysed(MANY, tmp_path, "many")))
    odd = [rank for rank in range(1, 64, 2) if rank != 33]
    assert lanes(page) == [list(range(0, 64, 2)), odd, [33]]
    names = page.locator("#held tbody th").all_text_contents()
    assert names == ["0 \N{MULTIPLICATION SIGN}32", *map(str, odd[:16]), "33"]
    assert page.locator("#held p").inner_text() == "and 15 more ranks"
    page.evaluate("page.pin({ lane: 1, position: 0 })")
    assert "the same: 30 more ranks (3, 5, 7, 9, 11, 13, 15, 17, …)" in told(page)
    page.keyboard.press("e")
    assert lanes(page) == [[rank] for rank in range(64)]
    assert told(page).startswith("rank 1: all_reduce on odd")
    assert page.locator("#fold").get_attribute("aria-pressed") == "false"
    page.locator("#fold").click()
    assert len(lanes(page)) == 3
    assert page.locator("#canvas").get_attribute("aria-label") == (
        "Space-time diagram, predicted: 64 ranks, deadlock"
    )


def test_what_the_ranks_of_a_lane_hold_is_told_of_each(open_page: Open, tmp_path: Path) -> None:
    text = """world_size: 32
tensors: {x: "[rank // 8]"}
steps:
  - barrier: {}
  - all_reduce: {tensor: x}
expect: {x: [48]}
"""
    page = open_page(page_of(analysed(text, tmp_path, "held")))
    assert lanes(page) == [list(range(32))]

    def rows() -> list[str]:
        return page.locator("#held tbody tr").all_inner_texts()

    page.evaluate("page.pin({ lane: 0, position: 0 })")
    times = "\N{MULTIPLICATION SIGN}8"
    assert [row.split("\t")[0] for row in rows()] == [f"{rank} {times}" for rank in (0, 8, 16, 24)]
    assert [row.split("\t")[-1] for row in rows()] == ["[0]", "[1]", "[2]", "[3]"]
    page.evaluate("page.pin({ lane: 0, position: 1 })")
    assert [row.split("\t")[-1] for row in rows()] == [
        f"[{rank}]\N{RIGHTWARDS ARROW}[48]" for rank in range(4)
    ]


def test_few_ranks_or_ranks_that_differ_have_a_lane_each(open_page: Open, tmp_path: Path) -> None:
    few = MANY.replace("world_size: 64", "world_size: 16").replace("33", "3")
    page = open_page(page_of(analysed(few, tmp_path, "few")))
    assert len(lanes(page)) == 16
    assert page.locator("#fold").is_hidden()


def test_a_key_leads_to_the_culprit(open_page: Open, tmp_path: Path) -> None:
    page = open_page(page_of(analysed(MANY, tmp_path, "many")))
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    assert told(page).startswith("rank 33: all of them\nstuck")
    passed = open_page(page_of(analysed(MANY.replace("rank != 33", "True"), tmp_path, "right")))
    assert passed.locator("#culprit").is_hidden()


def test_a_slider_goes_along_the_steps(open_page: Open, tmp_path: Path) -> None:
    right = MANY.replace('    ranks: "rank != 33"\n', "")
    page = open_page(page_of(analysed(right, tmp_path, "right")))
    slider = page.locator("#step")
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#at").text_content() == "1 of 2"
    assert told(page).startswith("rank 0: all_reduce on even")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "2 of 2: all of them"
    assert told(page).startswith("rank 0: all of them")


def test_ranks_steps_and_groups_are_found(open_page: Open, tmp_path: Path) -> None:
    page = open_page(page_of(analysed(MANY, tmp_path, "many")))
    page.keyboard.press("s")
    page.keyboard.type("odd")
    assert told(page).startswith("rank 1: all_reduce on odd")
    assert page.locator("#found").text_content() == "1 of 2"
    page.locator("#find").fill("rank 33")
    assert told(page).startswith("rank 33: ")
    page.locator("#find").fill("all of them")
    assert page.locator("#found").text_content() == "1 of 2"
    page.keyboard.press("Enter")
    assert page.locator("#found").text_content() == "2 of 2"
    page.locator("#find").fill("nothing")
    assert page.locator("#found").text_content() == "not found"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "canvas"


# ---------------------------------------------------------------------------- strangers

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028$title`${alert(3)}`"


def test_words_of_strangers_stay_words(open_page: Open, tmp_path: Path) -> None:
    quoted = HOSTILE.replace("'", "''")
    text = f"""\
description: '{quoted}'
tags: ['<b>tag</b>']
world_size: 2
tensors:
  x: [1]
steps:
  - name: '{quoted}'
    all_reduce: {{tensor: x}}
    expect: {{x: [3]}}
"""
    wrong = analysed(text, tmp_path, "a'\"><script>alert(4)<")
    broken = invalid('"</script><script>alert(1)": 1\n', tmp_path, "<img src=y onerror=alert(5)>")
    page = open_page(page_of(wrong, broken))
    assert page.locator("#title .description").inner_text().startswith("</script><script>alert(1)")
    page.locator("#list .option").nth(1).click()
    assert page.locator("pre.told").inner_text().count("alert(1)") > 0
    page.locator("#list .option").nth(0).click()
    page.mouse.move(*over(page, 0, 0))
    assert page.locator("img, b, #title script").count() == 0
    assert page.locator("script").count() == 2


def test_a_run_of_nothing_shows_no_empty_frames(open_page: Open) -> None:
    page = open_page(page_of())
    assert page.locator("#summary").inner_text() == "nothing was selected"
    assert page.locator("#list").inner_text() == "There is no case."
    assert page.locator("#stage").is_hidden()


def test_a_damaged_page_says_so(open_page: Open, tmp_path: Path, run: str) -> None:
    page = open_page(run)
    file = tmp_path / "report.html"
    text = file.read_text(encoding="utf-8")
    at = text.index('id="data">') + 60
    file.write_text(text[:at] + "AAAA" + text[at + 4 :], encoding="utf-8")
    page.evaluate("window.page = null")
    with page.expect_event("domcontentloaded"):
        page.evaluate("location.reload()")
    page.locator("h2", has_text="This report cannot be shown").wait_for()
