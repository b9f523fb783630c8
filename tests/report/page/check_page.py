#!/usr/bin/env python3
"""Opens pages of `hydraulis report` in headless Chromium and checks them against what the command
says otherwise: no errors, nothing loaded, numbers of tables and charts, both colour schemes,
keyboard.

    tests/report/page/check_page.py build/release/hydraulis [--screenshot report.png]

Ends with 77 (skipped) where there is no Chromium.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

SYSTEM = ["--model", "llama-13b", "--cluster", "a800-16"]
BATCHES = ["--context", "16384", "--tokens-per-batch", "60000", "--over-context", "truncate"]
RUN = [*SYSTEM, *BATCHES, "--trace", "trace.h5", "--iterations", "6"]
POLICIES = ["static-pack", "hydraulis"]

WATCH = (Path(__file__).parent / "watch.js").read_text()

DRIVE = (Path(__file__).parent / "drive.js").read_text()


class Page(HTMLParser):
    """Tables by id (their cells' full numbers, or texts) and the text of #found."""

    def __init__(self, text):
        super().__init__()
        self.tables = {}
        self.found = ""
        self.rows = None
        self.in_found = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "table":
            self.rows = []
            self.tables[attributes.get("id", "")] = self.rows
        elif tag == "tr" and self.rows is not None:
            self.rows.append([])
        elif tag in ("td", "th") and self.rows is not None:
            value = attributes.get("data-value")
            self.rows[-1].append(float(value) if value else "")
        elif tag == "pre" and attributes.get("id") == "found":
            self.in_found = True

    def handle_endtag(self, tag):
        if tag == "table":
            self.rows = None
        elif tag == "pre":
            self.in_found = False

    def handle_data(self, data):
        if self.in_found:
            self.found += data
        elif self.rows and self.rows[-1] and isinstance(self.rows[-1][-1], str):
            self.rows[-1][-1] += data


class Checks:
    def __init__(self):
        self.failed = []

    def that(self, condition, text):
        if not condition:
            self.failed.append(text)

    def equal(self, one, other, text, tolerance=1e-9):
        same = math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-12)
        self.that(same, f"{text}: {one} on the page, {other} in the data")


def contrast(one, other):
    def luminance(text):
        parts = [float(part) / 255 for part in text[text.index("(") + 1 : -1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Browser:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder

    def run(self, *arguments):
        command = [
            *(self.program, "--headless=new", "--no-sandbox", "--disable-gpu"),
            *("--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr"),
            *("--disable-background-networking", "--no-first-run", "--virtual-time-budget=20000"),
            *(f"--user-data-dir={self.folder / 'browser'}", *arguments),
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)

    def open(self, page, dark):
        driven = page.with_suffix(".driven.html")
        text = page.read_text()
        text = text.replace("<head>", f"<head><script>{WATCH}</script>", 1)
        text = text[: text.rindex("</body>")] + f"<script>{DRIVE}</script></body></html>"
        driven.write_text(text)
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        done = self.run(scheme, "--dump-dom", driven.as_uri())
        opened = Page(done.stdout)
        if not opened.found:
            sys.exit(f"{page.name}: the page did not get to its end\n{done.stderr[-3000:]}")
        opened.found = json.loads(opened.found)
        opened.console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return opened


def check_every_page(page, dark, checks, name):
    found = page.found
    for failure in found["failures"] + page.console:
        checks.failed.append(f"{name}: {failure}")
    checks.that(found["failuresAfterChoices"] == 0, f"{name}: a choice failed")
    checks.that(found["loaded"] == [], f"{name}: loads {found['loaded']}")
    checks.that(found["theme"] == ("dark" if dark else "light"), f"{name}: theme {found['theme']}")
    colors = found["colors"]
    for ink in ("ink", "muted"):
        for ground in ("page", "panel"):
            ratio = contrast(colors[ink], colors[ground])
            checks.that(ratio >= 4.5, f"{name}: contrast of {ink} on {ground} is {ratio:.1f}")
    light = contrast(colors["page"], "rgb(0, 0, 0)") > 10
    checks.that(light != dark, f"{name}: the page is {colors['page']}")
    for chart in found["charts"]:
        checks.that(found["focusable"][chart], f"{name}: {chart} takes no focus")
        checks.that(found["said"][chart] != "", f"{name}: {chart} says nothing to the keyboard")
    for chart, zoom in found["zoomed"].items():
        (a, b), (c, d), (e, f), whole = (zoom[k] for k in ("before", "near", "moved", "whole"))
        checks.equal((d - c) / (b - a), 0.5, f"{name}: {chart}, zoom of +", 1e-6)
        checks.that(e > c and f > d and f <= b + 1e-9, f"{name}: {chart} does not move")
        checks.that(whole == [a, b], f"{name}: {chart} does not show the whole again")


def check_comparison(page, compared, simulated, checks):
    rows = page.tables["summary-table"]
    columns = {name: i for i, name in enumerate(rows[0])}
    keys = {
        "mean ms": "mean_ms",
        "p95 ms": "p95_ms",
        "tokens/s": "tokens_per_second",
        "MFU": "mfu",
        "bubble share": "bubble_share",
        "speed-up": "speedup",
    }
    for row, policy in zip(rows[1:], compared["policies"], strict=True):
        checks.that(row[columns["policy"]] == policy["name"], f"row of {policy['name']}")
        for column, key in keys.items():
            checks.equal(row[columns[column]], policy[key], f"{policy['name']}, {column}")
    sources = {row[0]: row[1] for row in page.tables["provenance-table"][1:]}
    for source in compared["provenance"]:
        known = sources.get(source["what"])
        if source["what"] != "power":
            checks.that(known == source["source"], f"source of {source['what']}: {known}")
    charts = page.found["charts"]
    times = {
        name: [each["time_ms"] for each in one["iterations"]] for name, one in simulated.items()
    }
    for series in charts["iteration-times"]:
        expected = times[series["label"]]
        checks.that([p["x"] for p in series["data"]] == list(range(len(expected))), "iterations")
        for point, value in zip(series["data"], expected, strict=True):
            checks.equal(point["y"], value, f"{series['label']}, iteration {point['x']}")
    numbers = page.tables["iteration-times-numbers"][1:]
    checks.that(len(numbers) == sum(map(len, times.values())), "rows of the numbers' table")
    for name, iteration, value in numbers:
        checks.equal(value, times[name][int(iteration)], f"table: {name}, iteration {iteration}")
    chosen = [each["strategy"] for each in simulated["hydraulis"]["iterations"]]
    drawn = [int(point["y"].split(":")[0]) for point in charts["strategies-chosen"][0]["data"]]
    checks.that(drawn == chosen, f"strategies chosen: {drawn} drawn, {chosen} simulated")
    bars = [bar for series in charts["iteration-timeline"] for bar in series["data"]]
    end = max(bar["x"][1] for bar in bars)
    checks.equal(end, times["hydraulis"][0], "end of the timeline", 1e-6)
    kinds = {series["label"] for series in charts["iteration-timeline"]}
    checks.that({"forward", "backward", "bubble"} <= kinds, f"timeline shows {kinds}")
    for bar in bars:
        checks.that(0 <= bar["x"][0] < bar["x"][1] <= end + 1e-6, f"a bar at {bar['x']}")
    balance = charts["pipeline-balance"]
    checks.that([series["label"] for series in balance] == POLICIES, "balance before and after")
    for series in balance:
        slowest = max(series["data"])
        checks.that(0 < slowest <= times[series["label"]][0], f"balance of {series['label']}")
    memory = charts["stage-memory"]
    limits = [series for series in memory if series["label"] == "limit"]
    totals = [
        sum(parts) for parts in zip(*(s["data"] for s in memory if s not in limits), strict=True)
    ]
    checks.that(len(limits) == 1 and len(totals) > 0, "memory of stages")
    checks.that(all(0 < total < limits[0]["data"][0] for total in totals), f"memory {totals}")


def check_sweep(page, swept, checks):
    rows = page.tables["heat-map"]
    # Every value of every choice was looked at by the driver; what stands there is the last one.
    flat = [cell for row in rows[1:] for cell in row[1:]]
    points = swept["points"]
    checks.that(len(flat) == len(points), f"{len(flat)} cells for {len(points)} points")
    values = sorted(point["device_hours_per_billion_tokens"] for point in points)
    for cell, value in zip(sorted(flat), values, strict=True):
        checks.equal(cell, value, "heat map")
    table = page.tables["summary-table"]
    column = table[0].index("mean ms")
    for row, point in zip(table[1:], points, strict=True):
        checks.equal(row[column], point["mean_ms"], f"summary of {point}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hydraulis", type=Path)
    parser.add_argument("--screenshot", type=Path, help="of the comparison, written as PNG")
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        print("SKIPPED: pages are checked in Chromium, which is not installed")
        sys.exit(77)
    command = str(options.hydraulis.resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def hydraulis(*arguments):
            done = subprocess.run(
                [command, *map(str, arguments)],
                capture_output=True,
                text=True,
                cwd=folder,
                check=False,
            )
            if done.returncode != 0:
                sys.exit(f"{arguments[0]}: {done.stderr}")
            return done.stdout

        hydraulis("trace", "synth", "--preset", "commoncrawl", "-n", 5000, "-o", "trace.h5")
        hydraulis("plan", *SYSTEM, *BATCHES, "--trace", "trace.h5", "-o", "plan.json")
        run = [*BATCHES, "--trace", "trace.h5", "--plan", "plan.json", "--iterations", "6"]
        compare = ["compare", *run, "--policies", ",".join(POLICIES), "--json"]
        compared = json.loads(hydraulis(*compare, "--results", "r.h5"))
        simulated = {
            policy: json.loads(hydraulis("simulate", *run, "--policy", policy, "--json"))
            for policy in POLICIES
        }
        hydraulis("report", "r.h5", "-o", "r.html")
        sweep = {
            "model": "llama-13b",
            "cluster": "a800-16",
            "trace": "trace.h5",
            "strategies": "2x(1,8,1); (1,8,1)+2x(1,4,1)",
            "context": 16384,
            "over_context": "truncate",
            "tokens_per_batch": 60000,
            "iterations": 3,
            "grid": {
                "cluster.inter_node.bandwidth_gigabits_per_second": [50, 200],
                "policy": ["static-pack", "hydraulis-static", "hydraulis"],
            },
        }
        (folder / "sweep.json").write_text(json.dumps(sweep))
        swept = json.loads(hydraulis("sweep", "sweep.json", "-o", "s.h5", "--json"))
        hydraulis("report", "s.h5", "-o", "s.html")

        browser = Browser(program, folder)
        checks = Checks()
        for dark in (False, True):
            page = browser.open(folder / "r.html", dark)
            check_every_page(page, dark, checks, f"comparison, {'dark' if dark else 'light'}")
            check_comparison(page, compared, simulated, checks)
        page = browser.open(folder / "s.html", False)
        check_every_page(page, False, checks, "sweep")
        check_sweep(page, swept, checks)
        if options.screenshot:
            browser.run(
                *("--blink-settings=preferredColorScheme=1", "--window-size=1000,2200"),
                *(f"--screenshot={options.screenshot.resolve()}", (folder / "r.html").as_uri()),
            )
        for failure in checks.failed[:40]:
            print(f"FAILED: {failure}")
        if checks.failed:
            sys.exit(1)
        print(
            f"three pages, {len(page.found['charts'])} charts on the last: all as the data has it"
        )


if __name__ == "__main__":
    main()
