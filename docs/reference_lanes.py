"""Pictures of the scenarios that pages show: lanes, as `scenario show --svg` draws them.

A page asks for the picture of a file that it shows, `![what it is](pictures/NAME.svg)`; the page of
codes has one of each diagnosis. :mod:`reference_pages` writes them, and a test holds them fresh.
"""

from __future__ import annotations

import re
from pathlib import Path

from torch_scenarios.explain import EXPLANATIONS
from torch_scenarios.language.document import load_content
from torch_scenarios.pipeline.attempts import analyse
from torch_scenarios.report.diagram import PictureView, svg
from torch_scenarios.timeline import timeline
from torch_scenarios.vocabulary import DIAGNOSES

DOCS = Path(__file__).parent
#: where the pictures of diagnoses are
OF_CODES = DOCS / "reference" / "pictures"
#: pages that are lessons: each picture that one asks for is of a file that it shows
LESSONS = DOCS / "tutorial"

_ASKED = re.compile(r"!\[[^\]]*\]\(pictures/([\w-]+)\.svg\)")
_FILE = r"<!-- file: {name}\.yaml -->\n```yaml\n(.*?)```"


def pictures() -> dict[Path, str]:
    """Return every picture by its file."""
    codes = {OF_CODES / f"{name}.svg": (name, EXPLANATIONS[name].example) for name in DIAGNOSES}
    lessons = {
        LESSONS / "pictures" / f"{name}.svg": (name, text)
        for page in sorted(LESSONS.glob("*.md"))
        for name, text in _find_asked(page).items()
    }
    return {path: draw(name, text) for path, (name, text) in {**codes, **lessons}.items()}


def picture_of(code: str) -> str:
    """Return the line of the page of codes that shows a diagnosis; nothing for other codes."""
    return f"![lanes of the example](pictures/{code}.svg)" if code in DIAGNOSES else ""


def _find_asked(page: Path) -> dict[str, str]:
    """Return the texts of the files of a page whose pictures it asks for; KeyError without one."""
    text = page.read_text(encoding="utf-8")
    found: dict[str, str] = {}
    for name in _ASKED.findall(text):
        shown = re.search(_FILE.format(name=re.escape(name)), text, re.DOTALL)
        if shown is None:
            message = f"{page.name} asks for a picture of {name}.yaml, which it does not show"
            raise KeyError(message)
        found[name] = shown[1]
    return found


def draw(name: str, text: str) -> str:
    """Return the picture of the first case of a scenario, as it is predicted."""
    scenario = load_content(Path(f"{name}.yaml"), text.encode())[0]
    predicted = analyse(scenario).predicted
    assert predicted is not None, name
    return svg(timeline(scenario, predicted, predicted), PictureView())
