"""The page in a real browser, as wide as a phone."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.report import page
from tests.parity.page_runs import different, swept, traced


def _chromium() -> str | None:
    return next(
        (
            found
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (found := shutil.which(name))
        ),
        None,
    )


@pytest.mark.slow  # starts a browser, several seconds a time
@pytest.mark.skipif(_chromium() is None, reason="needs a chromium to look at the page with")
@pytest.mark.parametrize("kind", [traced, different, swept])
def test_a_browser_shows_it_on_a_phone_without_a_complaint(
    kind: Callable[[Path], Path], tmp_path: Path
) -> None:
    """390 px wide: nothing sticks out, every button of a timeline works, the console stays empty."""
    drawn_page = page.write(kind(tmp_path / "run"))
    # The least width of a window is more than a phone's; a frame can be as narrow. What the page's script or
    # the browser complains of becomes text of the frame's parent, which is what comes back.
    frame = tmp_path / "frame.html"
    frame.write_text(_FRAME.replace("PAGE", drawn_page.as_uri()))
    done = subprocess.run(
        [
            str(_chromium()), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--allow-file-access-from-files", "--enable-logging=stderr",
            "--virtual-time-budget=4000",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", frame.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    answer = re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    assert answer is not None, done.stdout
    found = json.loads(answer.group(1))
    assert found["width"] <= 390 and found["inside"] == 390, found
    assert found["errors"] == []
    assert found["details"] == (6 if kind is traced else 0)
    assert found["hidden"] == 0, "the whole step, the last button, shows every lane"
    assert found["moved"] is (kind is traced)
    assert "CONSOLE" not in done.stderr, done.stderr


_FRAME = """<!doctype html><iframe style="width:390px;height:900px;border:0" src="PAGE"></iframe><script>
const frame = document.querySelector("iframe"), errors = [];
frame.addEventListener("load", () => {
  const inner = frame.contentWindow, page = frame.contentDocument;
  inner.addEventListener("error", event => errors.push(event.message));
  const detail = page.querySelector(".detail"), before = detail && detail.innerHTML;
  for (const button of page.querySelectorAll(".zoom button")) button.click();
  const answer = document.createElement("pre");
  answer.textContent = JSON.stringify({
    inside: inner.innerWidth, width: page.documentElement.scrollWidth, errors,
    hidden: page.querySelectorAll(".detail .row[display]").length,
    details: page.querySelectorAll(".detail svg").length, moved: !!detail && before !== detail.innerHTML,
  });
  document.body.replaceChildren(answer);
});
</script>"""
