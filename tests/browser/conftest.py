"""One headless Chromium for all tests of the page; each test has a window of its own.

Where the browser, or the package that drives it, is missing, the tests are skipped and say so.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from html_page import CRASH, RING, SUMS, analysed, observed, page_of
from judging import hanging, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    Open = Callable[[str], Page]

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

#: what keeps a browser from talking to anyone, or from needing more than a container has
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


#: what every run opens a page for; the others are for the night, as each window takes seconds
ALWAYS = {
    "test_failures_come_first_and_the_first_is_open",
    "test_a_deadlock_is_told_drawn_and_explained",
    "test_a_screen_reader_hears_what_is_seen",
    "test_a_click_pins_a_span_and_shows_tensors_before_and_after",
    "test_everything_is_reached_by_keys",
    "test_light_and_dark_follow_the_system_and_the_switch",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave all but a few for the night."""
    if item.name not in ALWAYS:
        item.add_marker(pytest.mark.nightly)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start Chromium once, and end it, and the threads that drive it, with these tests."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    from playwright.sync_api import sync_playwright

    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Return what opens a page in a new window. Its console and the network stay silent."""
    told: list[str] = []
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")

    def opened(text: str) -> Page:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        page = context.new_page()
        page.set_default_timeout(20_000)  # a busy machine is slow, not wrong
        page.on("console", lambda message: told.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: told.append(f"error: {error}"))
        page.on("request", lambda asked: told.append(f"request: {asked.url}"))
        page.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
        page.goto(file.as_uri())
        page.wait_for_function("window.page")
        return page

    yield opened
    context.close()
    own = {f"request: {(tmp_path / 'report.html').as_uri()}", "request: data:,"}
    strange = [line for line in told if line not in own]
    assert strange == []


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a run: a pass, a deadlock, a wrong value, a crash, a backend that errs."""
    folder = tmp_path_factory.mktemp("run")
    return page_of(
        observed(SUMS, folder, "passes"),
        analysed(RING, folder, "ring"),
        analysed(SUMS.replace("[20, 20]", "[10, 10]"), folder, "wrong_sum"),
        analysed(CRASH, folder, "crash"),
        observed(SUMS, folder, "deviates", writing(2, 3, "x", [20, 7])),
        observed(SUMS, folder, "hangs", hanging(2, 1)),
    )
