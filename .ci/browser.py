"""Opens Snakemake's report in headless Chromium: ``browser.py REPORT.html RESULTS SCREENSHOT.png``.

The front page must begin at its top with findings and a headline of each experiment, every figure must be drawn, the
claims must be those of the csv files below RESULTS, and the console must have no error. Without Chromium, it says so
and does nothing.
"""

import base64
import contextlib
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH, HEIGHT = 1400, 900  # of the window
DRAWN = """(async () => {  // the page makes its elements and its styles after it is loaded
    for (let i = 0; i < 200 && !document.querySelector(".prose"); i++)
        await new Promise(next => setTimeout(next, 50));
    await new Promise(next => setTimeout(next, 1000));
})()"""
NARROW = 400  # pixels, of a telephone
CUT = """(() => {
    const prose = document.querySelector(".prose").getBoundingClientRect();
    const nav = document.querySelector(".backdrop-blur-sm").getBoundingClientRect();
    const beside = nav.bottom <= prose.top + 1 ? 0 : nav.right;  // the menu is above the text, or beside it
    return {left: prose.left - beside, right: innerWidth - prose.right, width: prose.width};
})()"""
FRONT = """(() => {
    const text = document.querySelector(".prose"), drawn = [...document.querySelectorAll(".headline svg")];
    return text && {top: text.getBoundingClientRect().top, drawn: drawn.map(svg => svg.getBoundingClientRect().width),
            said: document.querySelector(".findings")?.innerText.trim(), experiments: Object.keys(categories),
            graph: document.querySelectorAll("canvas, svg.marks").length};
})()"""
WHOLE = "Math.ceil(document.querySelector('.prose')?.getBoundingClientRect().height ?? 0) + 20"  # of the front page
FIGURES = "Object.keys(results).filter(path => results[path].mime_type.startsWith('image/'))"
SHOW = """(async path => {
    const category = Object.keys(categories).find(c => Object.values(categories[c]).flat().includes(path));
    const sub = Object.keys(categories[category]).find(s => categories[category][s].includes(path));
    app.setView({navbarMode: "subcategory", category: category, subcategory: sub, content: "img",
                 contentPath: results[path].data_uri, resultPath: path});
    for (let i = 0; i < 100; i++) {
        await new Promise(next => setTimeout(next, 20));
        const img = [...document.querySelectorAll("#app img")].find(one => one.src == results[path].data_uri);
        if (img && img.complete) {
            await img.decode().catch(() => null);  // a broken image has no size
            return [img.naturalWidth, img.naturalHeight, img.getBoundingClientRect().width];
        }
    }
    return null;
})(%s)"""


class Browser:
    """Chromium with one page, driven by the DevTools protocol over two pipes."""

    def __init__(self, program, profile):
        (there, self._out), (self._in, back) = os.pipe(), os.pipe()
        os.set_inheritable(there, True)
        os.set_inheritable(back, True)
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                   "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}"]  # fmt: skip
        script = f'exec "$@" 3<&{there} 4>&{back}'
        self._process = subprocess.Popen(["bash", "-c", script, "browser", program, *options], close_fds=False,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(there)
        os.close(back)
        self._number, self._rest, self.said, self._session = 0, b"", [], None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """Calls a method, and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._heard(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait(self, event):
        """Waits for an event."""
        while (answer := self._next()).get("method") != event:
            self._heard(answer)

    def value(self, expression):
        """The value of a JavaScript expression, or of its promise."""
        done = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression[:200]}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def sized(self, width, height):
        """Sets the size of the window, pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, address):
        """Opens a page, and waits until it is drawn."""
        self.send("Page.navigate", url=address)
        self.wait("Page.loadEventFired")
        self.value(DRAWN)

    def errors(self):
        """The errors in the page's console."""
        return [f"console: {json.dumps(one)[:300]}" for one in self.said]

    def close(self):
        """Ends it."""
        with contextlib.suppress(RuntimeError, OSError):
            self.send("Browser.close")
        self._process.wait(timeout=30)

    def _next(self):
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError(f"the browser ended with {self._process.wait()}")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _heard(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.said.append(params["exceptionDetails"].get("exception", params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.said.append([one.get("value", one.get("description")) for one in params["args"]])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.said.append(params["entry"]["text"])


def problems(browser, results):
    """The faults of the report, a sentence each; and its numbers of figures and claims."""
    front = browser.value(FRONT)
    if front is None:
        return ["the front page is empty", *browser.errors()], 0, 0
    found, figures, claims = [], browser.value(FIGURES), 0
    if front["top"] < 0:
        found.append(f"the front page begins {-front['top']:.0f} pixels above the window, where nobody can scroll")
    if len(front["drawn"]) != len(front["experiments"]) or not all(width > 100 for width in front["drawn"]):
        found.append(f"{len(front['experiments'])} experiments, and headlines of widths {front['drawn']}")
    if not front["said"]:
        found.append("the front page has no findings")
    if not front["graph"]:
        found.append("the graph of rules is not drawn")
    for path in figures:
        size = browser.value(SHOW % json.dumps(path))
        if not size or min(size) < 100:
            found.append(f"{path}: not drawn, its size is {size}")
    for path in sorted(Path(results).glob("*/claims.csv")):
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
        shown = browser.value(f"fetch(results[{json.dumps(str(path))}]?.data_uri ?? 'data:,').then(one => one.text())")
        if len(rows) > 1 and list(csv.reader(io.StringIO(shown))) != rows:
            found.append(f"{path}: the report has other claims than the file")
        claims += len(rows) - 1
    if not figures or not claims:
        found.append(f"{len(figures)} figures and {claims} claims")
    return found + browser.errors(), len(figures), claims


def narrow(browser, report):
    """The faults of the front page on a telephone, a sentence each."""
    browser.sized(NARROW, HEIGHT)
    browser.open(Path(report).resolve().as_uri())
    at = browser.value(CUT)
    if min(at["left"], at["right"]) < -1 or at["width"] < 0.8 * NARROW:
        return [f"at {NARROW} pixels, the text of the front page is cut off or squeezed: {at}"]
    return []


def main(report, results, screenshot):
    """The exit code: 0, or 1 with what is wrong."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        print("skipped: the report in a browser, since there is no Chromium (on Debian: apt-get install chromium)")
        return 0
    if not Path(report).is_file():
        print(f"there is no report {report}: make one (`make`)")
        return 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            browser.sized(WIDTH, HEIGHT)
            browser.open(Path(report).resolve().as_uri())
            height = browser.value(WHOLE)
            found, figures, claims = problems(browser, results)
            browser.sized(WIDTH, max(HEIGHT, height))
            browser.open(Path(report).resolve().as_uri())
            picture = browser.send("Page.captureScreenshot")["data"]
            found += narrow(browser, report)
        finally:
            browser.close()
    Path(screenshot).write_bytes(base64.b64decode(picture))
    print(*found, f"{report} in {Path(program).name}: {figures} figures, {claims} claims; {screenshot}", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
