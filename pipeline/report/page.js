// Draws the charts of the report. Texts are set as texts; what is drawn is on canvases.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const DASHES = [[], [8, 3], [2, 3], [10, 3, 2, 3]];
  const hidden = new Set();
  const charts = [];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const two = (number) => String(number).padStart(2, "0");

  function short(value) {
    const digits = (number) => (Math.abs(number) >= 100 ? number.toFixed(0) : String(+number.toPrecision(3)));
    if (Math.abs(value) >= 1e9) return `${digits(value / 1e9)} G`;
    if (Math.abs(value) >= 1e6) return `${digits(value / 1e6)} M`;
    return Math.abs(value) >= 1e4 ? `${digits(value / 1e3)} k` : digits(value);
  }

  function duration(ms) {
    for (const [size, unit] of [[864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"]]) {
      if (ms >= size) return `${+(ms / size).toPrecision(3)} ${unit}`;
    }
    return `${+ms.toPrecision(3)} ms`;
  }

  /** Steps of an axis of milliseconds: whole seconds, minutes, hours, days from there on. */
  const STEPS = [];
  for (let size = 0.001; size < 1000; size *= 10) STEPS.push(...[1, 2, 5].map((times) => +(times * size).toPrecision(1)));
  for (const [unit, counts] of [[1e3, [1, 2, 5, 10, 15, 30]], [6e4, [1, 2, 5, 10, 15, 30]], [36e5, [1, 2, 3, 6, 12]]]) {
    STEPS.push(...counts.map((times) => times * unit));
  }
  for (let size = 864e5; size < 1e12; size *= 10) STEPS.push(size, 2 * size, 5 * size);

  const SHOWN = { count: short, rate: (value) => `${short(value)}/s`, ms: duration };

  /** Hours and minutes in UTC; the day where a new one begins, and before the first. */
  function clock(at, before, step) {
    const time = new Date(at * 1000);
    const day = `${time.getUTCFullYear()}-${two(time.getUTCMonth() + 1)}-${two(time.getUTCDate())}`;
    if (step >= 86400) return day;
    const hour = `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}${step < 60 ? `:${two(time.getUTCSeconds())}` : ""}`;
    return before === undefined || new Date(before * 1000).getUTCDate() !== time.getUTCDate() ? `${hour}\n${day}` : hour;
  }

  const moment = (at) => new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ");

  /** The lines of a chart: at the end of its path, or of what was chosen there. */
  function linesOf(element) {
    const path = element.dataset.figures.split(".");
    let found = figures;
    for (const name of path) found = found[name];
    if (Array.isArray(found)) return found;
    const chosen = document.querySelector(`.choice[data-of="${path[0]}"] input:checked`);
    return found[chosen.value];
  }

  /** Each line on top of those before it. */
  function stacked(lines) {
    const sums = new Array(figures.times.length).fill(0);
    return lines.map((line, index) => line.map((value, at) => (sums[at] += hidden.has(index) ? 0 : value || 0)));
  }

  /** A dot and the number at each line's highest point. */
  function drawPeaks(chart) {
    const context = chart.ctx;
    context.save();
    context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    context.textBaseline = "bottom";
    context.textAlign = "left";
    const taken = [];
    for (let index = 1; index < chart.series.length; index++) {
      const line = chart.data[index];
      if (!chart.series[index].show) continue;
      let best = -1;
      line.forEach((value, at) => { if (value !== null && value > 0 && (best < 0 || value > line[best])) best = at; });
      if (best < 0) continue;
      const x = chart.valToPos(chart.data[0][best], "x", true);
      const y = chart.valToPos(line[best], "y", true);
      context.fillStyle = chart.series[index].stroke(chart, index);
      context.beginPath();
      context.arc(x, y, 4 * devicePixelRatio, 0, 2 * Math.PI);
      context.fill();
      const wide = context.measureText(short(line[best])).width;
      const left = Math.min(Math.max(x - wide / 2, chart.bbox.left), chart.bbox.left + chart.bbox.width - wide);
      const box = [left, y - 20 * devicePixelRatio, left + wide, y - 5 * devicePixelRatio];
      if (taken.some((one) => one[0] < box[2] && box[0] < one[2] && one[1] < box[3] && box[1] < one[3])) continue;
      taken.push(box);
      context.fillText(short(line[best]), left, y - 5 * devicePixelRatio);
    }
    context.restore();
  }

  /** A band for each hole of the journal. */
  function drawHoles(chart) {
    const { left, top, width, height } = chart.bbox;
    chart.ctx.save();
    chart.ctx.fillStyle = colour("--fault");
    chart.ctx.globalAlpha = 0.3;
    for (const [begin, end] of figures.holes) {
      const [from, to] = [begin, end].map((at) => chart.valToPos(at, "x", true));
      if (from > left + width || to < left) continue;
      const first = Math.max(from, left);
      chart.ctx.fillRect(first, top, Math.max(Math.min(to, left + width) - first, 2 * devicePixelRatio), height);
    }
    chart.ctx.restore();
  }

  function make(element) {
    const lines = linesOf(element);
    const shown = SHOWN[element.dataset.unit];
    const isBars = "bars" in element.dataset;
    const order = lines.map((_, index) => index);
    if (isBars) order.reverse(); // the highest of a stack is drawn first, the others on it
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const size = () => ({ width: Math.max(240, element.clientWidth), height: element.clientWidth < 480 ? 200 : 260 });
    const edge = figures.window_s / 2;
    const span = [figures.times[0] - edge, figures.times[figures.times.length - 1] + edge];
    const drawn = isBars ? stacked(lines) : lines;
    const isAlone = figures.times.length < 3;
    const chart = new window.uPlot(
      {
        ...size(),
        tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
        cursor: { sync: { key: "report" }, drag: { x: true, y: false }, points: { show: !isBars } },
        legend: { markers: { width: 0, fill: (one, index) => one.series[index].stroke(one, index) } },
        scales: {
          x: { range: (_, low, high) => (low === figures.times[0] && high === figures.times[figures.times.length - 1] ? span : [low, high]) },
          y: { range: (_, low, high) => [0, (high ?? 0) > 0 ? high * 1.15 : 1] },
        },
        axes: [
          { ...axis, space: 80, size: 44, values: (_, ticks, __, ___, step) => ticks.map((at, index) => clock(at, ticks[index - 1], step)) },
          { ...axis, size: 66, ...(element.dataset.unit === "ms" ? { incrs: STEPS } : {}), values: (_, ticks) => ticks.map((tick) => (element.dataset.unit === "count" && !Number.isInteger(tick) ? "" : shown(tick))) },
        ],
        series: [
          { label: "UTC", value: (_, at) => (at === null || at === undefined ? "–" : moment(at)) },
          ...order.map((index) => ({
            label: figures.queues[index].name,
            stroke: () => colour(`--c${figures.queues[index].colour}`),
            fill: isBars ? () => colour(`--c${figures.queues[index].colour}`) : undefined,
            paths: isBars ? window.uPlot.paths.bars({ size: [0.8, 40], align: 0 }) : undefined,
            dash: isBars ? undefined : DASHES[Math.floor(index / 4) % DASHES.length],
            width: isBars ? 0 : 2,
            show: !hidden.has(index),
            points: { show: isAlone && !isBars },
            value: (_, __, ___, at) => {
              const value = at === null || at === undefined ? null : lines[index][at];
              return value === null || value === undefined ? "–" : shown(value);
            },
          })),
        ],
        hooks: { draw: "peaks" in element.dataset ? [drawHoles, drawPeaks] : [drawHoles] },
      },
      [figures.times, ...order.map((index) => drawn[index])],
      element,
    );
    const told = lines.map((line, index) => `${figures.queues[index].name}: at most ${shown(line.reduce((most, value) => Math.max(most, value || 0), 0))}`);
    const title = element.parentElement.querySelector("figcaption");
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", `${title ? title.textContent : element.dataset.figures}; ${told.join(", ")}`);
    return { chart, size };
  }

  function drawAll() {
    for (const one of charts) one.chart.destroy();
    charts.length = 0;
    for (const element of document.querySelectorAll(".chart")) charts.push({ element, ...make(element) });
  }

  function resizeAll() {
    for (const { chart, size } of charts) {
      const wanted = size();
      if (wanted.width !== chart.width || wanted.height !== chart.height) chart.setSize(wanted);
    }
  }

  const keys = [...document.querySelectorAll(".key")];
  for (const key of keys) {
    key.addEventListener("click", (event) => {
      const queue = Number(key.dataset.queue);
      if (event.ctrlKey || event.metaKey) {
        const isAlone = !hidden.has(queue) && hidden.size === keys.length - 1;
        hidden.clear();
        if (!isAlone) for (const other of keys) if (other !== key) hidden.add(Number(other.dataset.queue));
      } else if (!hidden.delete(queue)) hidden.add(queue);
      for (const one of keys) one.setAttribute("aria-pressed", String(!hidden.has(Number(one.dataset.queue))));
      drawAll();
    });
  }
  for (const choice of document.querySelectorAll(".choice")) choice.addEventListener("change", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  matchMedia("print").addEventListener("change", drawAll);
  addEventListener("beforeprint", drawAll);
  addEventListener("afterprint", drawAll);
  addEventListener("resize", resizeAll);
  if (figures.times.length && figures.queues.length) drawAll();
})();
