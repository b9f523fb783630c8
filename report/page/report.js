"use strict";
// Draws the results in the page's data block: tables, and charts by Chart.js. Every chart has its
// numbers in a table below it, made from what the chart holds, and can be walked with the keyboard.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const charts = new Map(); // by id, for tests and for whoever opens the console
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const quiet = { animation: false, responsive: true, maintainAspectRatio: false };

  // ---------------------------------------------------------------- elements and numbers

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") node.textContent = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  function show(value, decimals = 1) {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (!Number.isFinite(value)) return "–";
    return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  }

  // As many digits as say the number: axis values and units of any size.
  function digits(value) {
    return typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
  }

  // A table whose cells keep their full numbers in data-value.
  function table(columns, rows, attributes = {}) {
    const head = el("tr", {}, ...columns.map((c) => el("th", { scope: "col", class: c.text ? "text" : "", text: c.name })));
    const body = rows.map((row) =>
      el("tr", {}, ...row.map((value, i) => {
        const cell = el("td", { class: columns[i].text ? "text" : "", text: show(value, columns[i].decimals) });
        if (typeof value === "number") cell.dataset.value = String(value);
        return cell;
      })));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": attributes.label || "table" },
      el("table", attributes.id ? { id: attributes.id } : {}, el("thead", {}, head), el("tbody", {}, ...body)));
  }

  function section(id, title, text) {
    const node = el("section", { id, "aria-labelledby": `${id}-title` },
      el("h2", { id: `${id}-title`, text: title }), el("p", { text }));
    main.append(node);
    document.getElementById("contents").append(el("li", {}, el("a", { href: `#${id}`, text: title })));
    return node;
  }

  function choice(label, options, chosen, change) {
    const select = el("select", { onchange: () => change(select.value) },
      ...options.map(([value, text]) => el("option", { value, text })));
    select.value = String(chosen);
    return el("label", {}, `${label} `, select);
  }

  function say(text) {
    document.getElementById("said").textContent = text;
  }

  // ---------------------------------------------------------------- charts

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    return {
      ink: color("--ink"), muted: color("--muted"), line: color("--line"), warn: color("--warn"),
      series: dark.matches
        ? ["#63b7f5", "#ff9d5c", "#4fd6a8", "#f2a5cf", "#ffd166", "#b9a5ff", "#9fd356", "#a9b4bf"]
        : ["#0b62b8", "#c24e00", "#00795a", "#a8387f", "#8a6500", "#6a4bc4", "#4c7a00", "#5f6b76"],
    };
  }

  function axis(colors, title, more = {}) {
    return {
      title: { display: true, text: title, color: colors.ink },
      ticks: { color: colors.muted, ...more.ticks },
      grid: { color: colors.line, ...more.grid },
      ...more.scale,
    };
  }

  // A chart with its keyboard, its table and, where it has one, its zoom.
  //   config(colors): the Chart.js configuration; rows(): what the table says;
  //   range: [from, to] of the x axis, where it can be zoomed.
  class Plot {
    constructor(parent, { id, label, caption, height, columns, config, rows, range }) {
      Object.assign(this, { id, columns, config, rows, range });
      this.point = null;
      this.canvas = el("canvas", { id, tabindex: "0", role: "img", "aria-label": `${label}. Arrow keys walk its points${range ? "; plus, minus and 0 zoom, page up and down move" : ""}; the numbers are in the table below.` });
      this.box = el("div", { class: "plot" }, this.canvas);
      if (height) this.box.style.height = height;
      this.caption = el("figcaption", { text: caption });
      this.numbers = el("details", { ontoggle: () => this.fill() }, el("summary", { text: "Numbers" }));
      const parts = [this.box, this.caption, this.numbers];
      if (range) parts.unshift(this.zoomButtons(label));
      parent.append(el("figure", {}, ...parts));
      this.chart = new Chart(this.canvas, this.made());
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      if (range) {
        this.canvas.addEventListener("wheel", (event) => {
          if (!event.ctrlKey && !event.metaKey) return;
          event.preventDefault();
          const at = this.chart.scales.x.getValueForPixel(event.offsetX);
          this.zoom(event.deltaY < 0 ? 0.8 : 1.25, at);
        }, { passive: false });
        this.dragging();
      }
      charts.set(id, this);
    }

    made() {
      const config = this.config(theme());
      config.options = { ...quiet, ...config.options };
      if (this.range) {
        const [from, to] = this.window || this.range();
        Object.assign(config.options.scales.x, { min: from, max: to });
      }
      return config;
    }

    redraw(caption) {
      const config = this.made();
      this.chart.data = config.data;
      this.chart.options = config.options;
      this.chart.update("none");
      if (caption !== undefined) this.caption.textContent = caption;
      this.filled = false;
      this.point = null;
      this.fill();
    }

    fill() {
      const open = this.numbers.open;
      if (!open || this.filled) return;
      this.filled = true;
      this.numbers.querySelector(".scroll")?.remove();
      this.numbers.append(table(this.columns, this.rows(this.chart), { label: "numbers of the chart", id: `${this.id}-numbers` }));
    }

    zoomButtons(label) {
      const button = (text, name, act) => el("button", { type: "button", "aria-label": `${name}: ${label}`, text, onclick: act });
      return el("div", { class: "controls" },
        button("+", "zoom in", () => this.zoom(0.5)), button("−", "zoom out", () => this.zoom(2)),
        button("←", "move left", () => this.pan(-0.25)), button("→", "move right", () => this.pan(0.25)),
        button("whole", "show the whole", () => this.whole()),
        el("span", { class: "muted", text: "ctrl and wheel zoom, dragging moves" }));
    }

    zoom(factor, at) {
      const [low, high] = this.range();
      const { min, max } = this.chart.scales.x;
      const middle = at ?? (min + max) / 2;
      const span = Math.min(high - low, Math.max((high - low) * 1e-4, (max - min) * factor));
      const from = Math.min(Math.max(middle - ((middle - min) / (max - min)) * span, low), high - span);
      this.look(from, from + span);
    }

    pan(share) {
      const [low, high] = this.range();
      const { min, max } = this.chart.scales.x;
      const from = Math.min(Math.max(min + share * (max - min), low), high - (max - min));
      this.look(from, from + (max - min));
    }

    whole() {
      this.look(...this.range());
    }

    look(from, to) {
      this.window = [from, to];
      Object.assign(this.chart.options.scales.x, { min: from, max: to });
      this.chart.update("none");
      this.canvas.dataset.from = String(from);
      this.canvas.dataset.to = String(to);
    }

    dragging() {
      let from = null;
      this.canvas.addEventListener("pointerdown", (event) => {
        from = { x: event.offsetX, window: [this.chart.scales.x.min, this.chart.scales.x.max] };
      });
      this.canvas.addEventListener("pointermove", (event) => {
        if (!from || !event.buttons) return;
        const width = this.chart.scales.x.width || 1;
        const [low, high] = this.range();
        const span = from.window[1] - from.window[0];
        const moved = ((from.x - event.offsetX) / width) * span;
        const begin = Math.min(Math.max(from.window[0] + moved, low), high - span);
        this.look(begin, begin + span);
      });
    }

    key(event) {
      const zooms = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.whole(), PageUp: () => this.pan(-0.25), PageDown: () => this.pan(0.25) };
      const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -Infinity], End: [0, Infinity] };
      if (this.range && zooms[event.key] && !event.ctrlKey && !event.metaKey) zooms[event.key]();
      else if (steps[event.key]) this.walk(...steps[event.key]);
      else return;
      event.preventDefault();
    }

    walk(series, index) {
      const sets = this.chart.data.datasets;
      if (!sets.some((set) => set.data.length)) return;
      const at = this.point || { datasetIndex: 0, index: index > 0 ? -1 : 0 };
      let s = at.datasetIndex;
      do s = (s + series + sets.length) % sets.length;
      while (!sets[s].data.length && (series || (series = 1)));
      const i = Math.min(Math.max(at.index + index, 0), sets[s].data.length - 1);
      this.point = { datasetIndex: s, index: i };
      this.chart.setActiveElements([this.point]);
      const where = this.chart.getDatasetMeta(s).data[i]?.tooltipPosition() || { x: 0, y: 0 };
      this.chart.tooltip.setActiveElements([this.point], where);
      this.chart.update("none");
      const lines = this.chart.tooltip.body?.flatMap((part) => part.lines) || [];
      say([...(this.chart.tooltip.title || []), ...lines].join(", "));
    }
  }

  dark.addEventListener("change", () => {
    document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
    for (const plot of charts.values()) plot.redraw();
    heatMap?.();
  });
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";

  function tooltip(colors, more = {}) {
    return { tooltip: { callbacks: more }, legend: { labels: { color: colors.ink, boxWidth: 14 } } };
  }

  // ---------------------------------------------------------------- what there is

  const runs = data.runs;
  const done = runs.map((run, i) => ({ ...run, index: i })).filter((run) => run.outcome === "done");
  const timed = done.filter((run) => run.iterations.time_ms.length > 0);
  const kept = done.filter((run) => run.kept);
  const GB = 1e9;
  let heatMap = null;

  const models = [...new Set(runs.map((run) => run.model).filter(Boolean))].join(", ");
  const origins = [...new Set(done.map((run) => `${run.analytic ? "analytic" : "measured"}: ${run.profile}`))];
  document.getElementById("origin").textContent =
    [models && `model ${models}`, ...origins.map((origin) => `times ${origin}`), ...data.notes].filter(Boolean).join(" · ");

  // ---------------------------------------------------------------- summary

  function summary() {
    const node = section("summary", "Summary", data.axes.length
      ? `${runs.length} points, ${done.length} of them simulated; the speed-up is against the first of them.`
      : `Every system on the same batches; the speed-up is against the first${done.length < runs.length ? " that is feasible" : ""}.`);
    const first = done[0];
    const columns = [
      ...data.axes.map((name) => ({ name, text: true, decimals: 0 })),
      ...(data.axes.includes("policy") ? [] : [{ name: "policy", text: true }]),
      { name: "outcome", text: true }, { name: "devices", decimals: 0 }, { name: "mean ms" }, { name: "p95 ms" },
      { name: "tokens/s", decimals: 0 }, { name: "MFU", decimals: 4 }, { name: "bubble share", decimals: 4 },
      { name: "exposed communication ms" }, { name: "device-hours/B tokens" }, { name: "speed-up", decimals: 3 },
    ];
    const rows = runs.map((run) => {
      const s = run.summary;
      const numbers = run.outcome === "done"
        ? [s.mean_ms, s.p95_ms, s.tokens_per_second, s.mfu, s.bubble_share, s.exposed_communication_ms,
          s.device_hours_per_billion_tokens, first.summary.mean_ms / s.mean_ms]
        : Array(8).fill(null);
      return [...run.axis.map(digits), ...(data.axes.includes("policy") ? [] : [run.policy]), run.outcome, run.devices, ...numbers];
    });
    node.append(table(columns, rows, { label: "summary of all runs", id: "summary-table" }));
    const lines = [...new Set(runs.map((run) => run.message || (run.remark && `${run.policy}: ${run.remark}`)).filter(Boolean))];
    if (lines.length) {
      node.append(el("details", {}, el("summary", { text: `Remarks and reasons (${lines.length})` }),
        el("ul", {}, ...lines.map((text) => el("li", { text })))));
    }
    const sources = new Map();
    for (const run of runs) {
      for (const { what, source, detail } of run.provenance ?? []) {
        const cells = [what, source, detail].map((text) => String(text ?? ""));
        sources.set(cells.join("\n"), cells);
      }
    }
    if (sources.size) {
      node.append(el("details", {}, el("summary", { text: `Where the numbers come from (${sources.size})` }),
        table([{ name: "number", text: true }, { name: "source", text: true }, { name: "detail", text: true }],
          [...sources.values()], { label: "sources of the numbers", id: "provenance-table" })));
    }
  }

  // ---------------------------------------------------------------- iterations

  function iterations() {
    if (!timed.length) return;
    const most = 24;
    const offered = timed.slice(0, most);
    const drawn = new Set(offered.slice(0, 8).map((run) => run.index));
    const node = section("iterations", "Iteration times", "Each iteration trains another batch; the same number is the same batch in every run."
      + (timed.length > most ? ` The first ${most} of ${timed.length} runs can be drawn here; all are in the results file.` : ""));
    const boxes = el("fieldset", { class: "controls" }, el("legend", { class: "muted", text: "runs drawn" }));
    node.append(boxes);
    const chosen = () => offered.filter((run) => drawn.has(run.index));
    const plot = new Plot(node, {
      id: "iteration-times", label: "Iteration time by iteration", caption: "iteration time in milliseconds",
      columns: [{ name: "run", text: true }, { name: "iteration", decimals: 0 }, { name: "ms", decimals: 3 }],
      range: () => [0, Math.max(1, ...offered.map((run) => run.iterations.time_ms.length - 1))],
      config: (colors) => ({
        type: "line",
        data: {
          datasets: chosen().map((run) => {
            const color = colors.series[offered.findIndex((other) => other.index === run.index) % colors.series.length];
            return { label: run.label, data: run.iterations.time_ms.map((y, x) => ({ x, y })), borderColor: color, backgroundColor: color, borderWidth: 1.5, pointRadius: 1.5 };
          }),
        },
        options: {
          scales: { x: axis(colors, "iteration", { scale: { type: "linear" }, ticks: { precision: 0 } }), y: axis(colors, "ms", { scale: { beginAtZero: true } }) },
          plugins: tooltip(colors, { title: (items) => items.length ? `iteration ${items[0].parsed.x}` : "", label: (item) => `${item.dataset.label}: ${show(item.parsed.y, 1)} ms` }),
        },
      }),
      rows: (chart) => chart.data.datasets.flatMap((set) => set.data.map((point) => [set.label, point.x, point.y])),
    });
    for (const run of offered) {
      const box = el("input", { type: "checkbox", onchange: () => {
        if (box.checked) drawn.add(run.index); else drawn.delete(run.index);
        plot.redraw();
      } });
      box.checked = drawn.has(run.index);
      boxes.append(el("label", {}, box, ` ${run.label}`));
    }
  }

  function strategies() {
    const several = timed.filter((run) => run.strategies.length > 0);
    if (!several.length) return;
    const node = section("strategies", "Strategy chosen", "Which strategy of its set each iteration used.");
    let run = several.find((each) => each.strategies.length > 1) || several[0];
    const name = (number) => `${number}: ${run.strategies[number]}`;
    const caption = () => {
      const counts = run.strategies.map((_, i) => run.iterations.strategy.filter((s) => s === i).length);
      return `${run.label}: ${counts.filter((n) => n).length} of ${run.strategies.length} strategies used`;
    };
    const controls = el("div", { class: "controls" });
    node.append(controls);
    const plot = new Plot(node, {
      id: "strategies-chosen", label: "Strategy by iteration", caption: caption(), height: "16rem",
      columns: [{ name: "iteration", decimals: 0 }, { name: "strategy", text: true }],
      range: () => [0, Math.max(1, run.iterations.strategy.length - 1)],
      config: (colors) => ({
        type: "line",
        data: { datasets: [{ label: run.label, data: run.iterations.strategy.map((s, x) => ({ x, y: name(s) })), showLine: false, pointRadius: 3.5, borderColor: colors.series[0], backgroundColor: colors.series[0] }] },
        options: {
          scales: {
            x: axis(colors, "iteration", { scale: { type: "linear" }, ticks: { precision: 0 } }),
            y: axis(colors, "strategy", { scale: { type: "category", labels: run.strategies.map((_, i) => name(i)), offset: true }, ticks: { callback: (_, i) => run.strategies[i].length > 34 ? `${name(i).slice(0, 34)}…` : name(i) } }),
          },
          plugins: { ...tooltip(colors, { title: (items) => items.length ? `iteration ${items[0].parsed.x}` : "", label: (item) => item.raw.y }), legend: { display: false } },
        },
      }),
      rows: (chart) => chart.data.datasets[0].data.map((point) => [point.x, point.y]),
    });
    controls.append(choice("run", several.map((each) => [each.index, each.label]), run.index, (value) => {
      run = runs[value];
      plot.window = null;
      plot.redraw(caption());
    }));
  }

  // ---------------------------------------------------------------- one iteration

  const KINDS = [
    ["forward", ["forward"]], ["backward", ["backward", "backward_input", "backward_weight"]], ["recomputation", ["recompute"]],
    ["between stages", ["send_activation", "receive_activation", "send_gradient", "receive_gradient"]],
    ["parameters and gradients", ["gather_parameters", "reduce_gradients"]],
    ["norm, optimizer", ["gradient_norm", "optimizer_step", "barrier"]], ["other", ["all_to_all", "offload", "fetch"]],
  ];
  const stageName = (stage) => `pipeline ${stage.pipeline}, stage ${stage.index} ${stage.scheme}`;

  // Spans of one stage in which none of its streams does anything.
  function gaps(spans, end) {
    const result = [];
    let at = 0;
    for (const [from, to] of [...spans].sort((a, b) => a[0] - b[0])) {
      if (from > at) result.push([at, from]);
      at = Math.max(at, to);
    }
    if (end > at) result.push([at, end]);
    return result;
  }

  function eventsOf(run) {
    const e = run.kept.events;
    return e.start_ms.map((start, i) => ({ stage: e.stage[i], op: data.ops[e.op[i]], compute: data.streams[e.stream[i]] === "compute", micro_batch: e.micro_batch[i], start, end: e.end_ms[i], bytes: e.bytes[i] }))
      .filter((event) => event.end > event.start);
  }

  const endOf = (events) => Math.max(0, ...events.map((event) => event.end));

  function timeline() {
    const drawn = kept.filter((run) => run.kept.events);
    if (!drawn.length) return;
    const node = section("timeline", "One iteration", "Two rows a stage: what it computes, with its bubbles, and what it moves meanwhile.");
    let run = drawn[drawn.length - 1];
    let events;
    let end;
    const rowName = (stage, compute) => `${stageName(run.kept.stages[stage])}: ${compute ? "computes" : "moves"}`;
    const prepare = () => {
      events = eventsOf(run);
      end = endOf(events);
    };
    const caption = () => {
      const busy = run.kept.stages.map((stage) => stage.idle_ms / end);
      const idle = busy.reduce((a, b) => a + b, 0) / busy.length;
      return `${run.label}, iteration ${run.kept.iteration}: ${show(end, 1)} ms; a stage idles ${show(100 * idle, 1)} % of it on average`;
    };
    const height = () => `${Math.max(14, 4.5 + 1.15 * 2 * run.kept.stages.length)}rem`;
    prepare();
    const controls = el("div", { class: "controls" });
    node.append(controls);
    const plot = new Plot(node, {
      id: "iteration-timeline", label: "Timeline of one iteration", caption: caption(), height: height(),
      columns: [{ name: "stage", text: true }, { name: "what", text: true }, { name: "micro-batch", decimals: 0 }, { name: "from ms", decimals: 3 }, { name: "to ms", decimals: 3 }, { name: "bytes", decimals: 0 }],
      range: () => [0, end],
      config: (colors) => {
        const sets = KINDS.map(([label, ops], k) => ({
          label, backgroundColor: colors.series[k],
          data: events.filter((event) => ops.includes(event.op)).map((event) => ({ x: [event.start, event.end], y: rowName(event.stage, event.compute), event })),
        }));
        sets.push({
          label: "bubble", backgroundColor: colors.line,
          data: run.kept.stages.flatMap((_, s) => gaps(events.filter((event) => event.stage === s).map((event) => [event.start, event.end]), end).map((span) => ({ x: span, y: rowName(s, true), event: { stage: s, op: "bubble", micro_batch: -1, start: span[0], end: span[1], bytes: 0 } }))),
        });
        return {
          type: "bar",
          data: {
            labels: run.kept.stages.flatMap((_, s) => [rowName(s, true), rowName(s, false)]),
            datasets: sets.filter((set) => set.data.length).map((set) => ({ ...set, grouped: false, barPercentage: 0.9, categoryPercentage: 1, borderWidth: 0 })),
          },
          options: {
            indexAxis: "y",
            scales: { x: axis(colors, "ms", { scale: { type: "linear" } }), y: axis(colors, "", { ticks: { autoSkip: false, font: { size: 10 } } }) },
            interaction: { mode: "point" },
            plugins: tooltip(colors, {
              title: (items) => items.length ? items[0].raw.y : "",
              label: ({ raw: { event } }) => `${event.op}${event.micro_batch >= 0 ? `, micro-batch ${event.micro_batch}` : ""}: ${show(event.start, 3)} to ${show(event.end, 3)} ms${event.bytes ? `, ${show(event.bytes / GB, 3)} GB` : ""}`,
            }),
          },
        };
      },
      rows: (chart) => chart.data.datasets.flatMap((set) => set.data.map(({ event }) => [stageName(run.kept.stages[event.stage]), event.op, event.micro_batch < 0 ? null : event.micro_batch, event.start, event.end, event.bytes]))
        .sort((a, b) => a[3] - b[3]),
    });
    controls.append(choice("run", drawn.map((each) => [each.index, each.label]), run.index, (value) => {
      run = runs[value];
      prepare();
      plot.window = null;
      plot.box.style.height = height();
      plot.redraw(caption());
    }));
  }

  function balance() {
    const drawn = kept.filter((run) => run.kept.events);
    if (!drawn.length) return;
    const node = section("balance", "Balance of the pipelines", "From a pipeline's first forward to its last backward: who is waited for. The same batch in both runs.");
    let before = drawn[0];
    let after = drawn[drawn.length - 1];
    const times = (run) => {
      const spans = new Map();
      for (const event of eventsOf(run)) {
        if (!event.compute || event.micro_batch < 0) continue;
        const pipeline = run.kept.stages[event.stage].pipeline;
        const [from, to] = spans.get(pipeline) || [Infinity, 0];
        spans.set(pipeline, [Math.min(from, event.start), Math.max(to, event.end)]);
      }
      const count = 1 + Math.max(...run.kept.stages.map((stage) => stage.pipeline));
      return Array.from({ length: count }, (_, p) => (spans.has(p) ? spans.get(p)[1] - spans.get(p)[0] : 0));
    };
    const spread = (run) => {
      const all = times(run);
      return show(Math.max(...all) / (all.reduce((a, b) => a + b, 0) / all.length), 2);
    };
    const caption = () => `slowest pipeline over the mean: ${before.label} ${spread(before)}, ${after.label} ${spread(after)}`;
    const controls = el("div", { class: "controls" });
    node.append(controls);
    const plot = new Plot(node, {
      id: "pipeline-balance", label: "Time of each pipeline, before and after", caption: caption(),
      columns: [{ name: "run", text: true }, { name: "pipeline", decimals: 0 }, { name: "ms", decimals: 3 }],
      config: (colors) => {
        const sets = [before, after].map((run, i) => ({ label: run.label, data: times(run), backgroundColor: colors.series[i ? 0 : 1] }));
        return {
          type: "bar",
          data: { labels: Array.from({ length: Math.max(...sets.map((set) => set.data.length)) }, (_, p) => String(p)), datasets: sets },
          options: {
            scales: { x: axis(colors, "pipeline"), y: axis(colors, "ms", { scale: { beginAtZero: true } }) },
            plugins: tooltip(colors, { title: (items) => items.length ? `pipeline ${items[0].label}` : "", label: (item) => `${item.dataset.label}: ${show(item.parsed.y, 1)} ms` }),
          },
        };
      },
      rows: (chart) => chart.data.datasets.flatMap((set) => set.data.map((value, p) => [set.label, p, value])),
    });
    const options = drawn.map((each) => [each.index, each.label]);
    controls.append(
      choice("before", options, before.index, (value) => { before = runs[value]; plot.redraw(caption()); }),
      choice("after", options, after.index, (value) => { after = runs[value]; plot.redraw(caption()); }));
  }

  const MEMORY = [["optimizer states", "optimizer"], ["parameters", "parameters"], ["gradients", "gradients"], ["activations", "activations"], ["logits", "logits"], ["buffers", "buffers"], ["constant", "constant"]];

  function memory() {
    if (!kept.length) return;
    const node = section("memory", "Memory of a device", "By stage, with the micro-batches alive at its fullest moment (composed memory model); the line is what a device offers.");
    let run = kept[kept.length - 1];
    const caption = () => {
      const totals = run.kept.stages.map((stage) => MEMORY.reduce((sum, [, key]) => sum + stage.memory[key], 0));
      const worst = totals.indexOf(Math.max(...totals));
      return `${run.label}: the fullest is ${stageName(run.kept.stages[worst])} with ${show(totals[worst] / GB, 1)} of ${show(run.kept.memory_limit_bytes / GB, 1)} GB`;
    };
    const controls = el("div", { class: "controls" });
    node.append(controls);
    const plot = new Plot(node, {
      id: "stage-memory", label: "Memory by stage", caption: caption(),
      columns: [{ name: "stage", text: true }, { name: "kind", text: true }, { name: "GB", decimals: 3 }],
      config: (colors) => ({
        type: "bar",
        data: {
          labels: run.kept.stages.map(stageName),
          datasets: [
            { type: "line", label: "limit", data: run.kept.stages.map(() => run.kept.memory_limit_bytes / GB), borderColor: colors.warn, backgroundColor: colors.warn, borderDash: [6, 4], pointRadius: 0 },
            ...MEMORY.map(([label, key], i) => ({ label, data: run.kept.stages.map((stage) => stage.memory[key] / GB), backgroundColor: colors.series[i], stack: "memory" })),
          ],
        },
        options: {
          scales: { x: axis(colors, "", { scale: { stacked: true }, ticks: { font: { size: 10 }, callback: (_, i) => `${run.kept.stages[i].pipeline}.${run.kept.stages[i].index}` } }), y: axis(colors, "GB", { scale: { beginAtZero: true } }) },
          plugins: tooltip(colors, { label: (item) => `${item.dataset.label}: ${show(item.parsed.y, 2)} GB` }),
        },
      }),
      rows: (chart) => chart.data.datasets.filter((set) => set.label !== "limit").flatMap((set) => set.data.map((value, i) => [chart.data.labels[i], set.label, value])),
    });
    controls.append(choice("run", kept.map((each) => [each.index, each.label]), run.index, (value) => {
      run = runs[value];
      plot.redraw(caption());
    }));
  }

  // ---------------------------------------------------------------- grids

  const METRICS = [["tokens_per_second", "tokens/s", 0, true], ["mean_ms", "mean iteration ms", 1, false], ["p95_ms", "p95 iteration ms", 1, false], ["mfu", "MFU", 4, true], ["bubble_share", "bubble share", 4, false], ["exposed_communication_ms", "exposed communication ms", 1, false], ["device_hours_per_billion_tokens", "device-hours per billion tokens", 1, false]];

  // From a pale to a strong blue, readable with black or white text on it.
  function shade(share) {
    const low = dark.matches ? [38, 44, 52] : [240, 245, 250];
    const high = dark.matches ? [115, 183, 255] : [11, 82, 155];
    const rgb = low.map((from, i) => Math.round(from + share * (high[i] - from)));
    const bright = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
    return { color: `rgb(${rgb})`, ink: bright > 135 ? "#101418" : "#ffffff" };
  }

  function heatMaps() {
    if (!data.axes.length) return;
    const node = section("grid", "Heat map", "One cell a point of the grid, deeper where the value is higher; what does not fit says so.");
    const values = data.axes.map((_, a) => [...new Map(runs.map((run) => [JSON.stringify(run.axis[a]), run.axis[a]])).values()]);
    let metric = 0;
    let across = data.axes.length - 1;
    let down = data.axes.length > 1 ? 0 : -1;
    const fixed = values.map(() => 0);
    const controls = el("div", { class: "controls" });
    const place = el("div", {});
    node.append(controls, place);
    const cellOf = (x, y) => runs.find((run) => run.axis.every((value, a) => {
      const wanted = a === across ? x : a === down ? y : fixed[a];
      return JSON.stringify(value) === JSON.stringify(values[a][wanted]);
    }));
    heatMap = () => {
      const [key, name, decimals] = METRICS[metric];
      const rows = (down < 0 ? [0] : values[down].map((_, i) => i)).map((y) => values[across].map((_, x) => cellOf(x, y)));
      const numbers = rows.flat().filter((run) => run?.outcome === "done").map((run) => run.summary[key]);
      const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
      const body = rows.map((row, y) => el("tr", {}, el("th", { scope: "row", text: down < 0 ? name : digits(values[down][y]) }), ...row.map((run) => {
        if (run?.outcome !== "done") return el("td", { class: "none", title: run?.message || "", text: run?.outcome === "infeasible" ? "does not fit" : "invalid" });
        const value = run.summary[key];
        const { color, ink } = shade(high > low ? (value - low) / (high - low) : 0.5);
        const cell = el("td", { text: show(value, decimals), style: `background:${color};color:${ink}` });
        cell.dataset.value = String(value);
        return cell;
      })));
      const head = el("tr", {}, el("th", { scope: "col", text: down < 0 ? data.axes[across] : `${data.axes[down]} ↓ ${data.axes[across]} →` }), ...values[across].map((value) => el("th", { scope: "col", text: digits(value) })));
      place.replaceChildren(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `heat map of ${name}` },
        el("table", { class: "heat", id: "heat-map" }, el("caption", { class: "muted", text: name }), el("thead", {}, head), el("tbody", {}, ...body))));
    };
    const rebuild = () => {
      const axes = data.axes.map((name, a) => [a, name]);
      controls.replaceChildren(
        choice("value", METRICS.map(([, name], i) => [i, name]), metric, (value) => { metric = Number(value); heatMap(); }),
        choice("across", axes.filter(([a]) => a !== down), across, (value) => { across = Number(value); rebuild(); }));
      if (data.axes.length > 1) controls.append(choice("down", axes.filter(([a]) => a !== across), down, (value) => { down = Number(value); rebuild(); }));
      for (const [a, name] of axes) {
        if (a !== across && a !== down) controls.append(choice(name, values[a].map((value, i) => [i, digits(value)]), fixed[a], (value) => { fixed[a] = Number(value); heatMap(); }));
      }
      heatMap();
    };
    rebuild();
  }

  summary();
  heatMaps();
  iterations();
  strategies();
  timeline();
  balance();
  memory();
  window.hydraulisReport = { data, charts };
})();
