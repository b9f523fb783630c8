// Runs at the end: uses the page as somebody without a mouse would, and says what it holds.
(() => {
  const press = (canvas, key) =>
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const found = { charts: {}, said: {}, zoomed: {}, focusable: {} };
  for (const [id, plot] of hydraulisReport.charts) {
    found.charts[id] = plot.chart.data.datasets.map((set) => ({ label: set.label, data: set.data }));
    plot.canvas.focus();
    found.focusable[id] = document.activeElement === plot.canvas;
    press(plot.canvas, "ArrowRight");
    press(plot.canvas, "ArrowRight");
    found.said[id] = document.getElementById("said").textContent;
    if (plot.range) {
      const before = [plot.chart.scales.x.min, plot.chart.scales.x.max];
      press(plot.canvas, "+");
      const near = [plot.chart.scales.x.min, plot.chart.scales.x.max];
      press(plot.canvas, "PageDown");
      const moved = [plot.chart.scales.x.min, plot.chart.scales.x.max];
      press(plot.canvas, "0");
      const whole = [plot.chart.scales.x.min, plot.chart.scales.x.max];
      found.zoomed[id] = { before, near, moved, whole };
    }
    plot.numbers.open = true;
    plot.fill();
  }
  const style = getComputedStyle(document.body);
  const panel = getComputedStyle(document.querySelector("section"));
  const muted = getComputedStyle(document.querySelector(".muted"));
  found.colors = { ink: style.color, page: style.backgroundColor, panel: panel.backgroundColor, muted: muted.color };
  found.theme = document.documentElement.dataset.theme;
  found.loaded = performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !name.startsWith("data:"));
  found.failures = failures;
  for (const select of document.querySelectorAll("select")) {
    for (const option of select.options) {
      select.value = option.value;
      select.dispatchEvent(new Event("change"));
    }
  }
  found.failuresAfterChoices = failures.length;
  document.body.append(Object.assign(document.createElement("pre"), { id: "found", textContent: JSON.stringify(found) }));
})();
