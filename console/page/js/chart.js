// Charts over time. What the broker has as samples is shown; else what this page has seen since it was opened.
import { html, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { rate, rateOf, several } from "./format.js";
import { useShared } from "./state.js";

export const RANGES = [
  [60, 5, "1 min"],
  [600, 5, "10 min"],
  [3600, 60, "1 h"],
  [28800, 1800, "8 h"],
  [86400, 1800, "24 h"],
];
const KEPT = 720;
/** Colour and dashes of a line, by its name: the same on every page, whatever else is shown. */
const LINES = ["Ready", "Unacknowledged", "Acknowledged", "Redelivered", "Unroutable", "Confirmed"];
const SAME = { Published: "Ready", In: "Ready", "From client": "Ready", Memory: "Ready", Delivered: "Unacknowledged", Out: "Unacknowledged", "To client": "Unacknowledged" };
const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const DASHES = [[], [6, 3], [2, 3], [10, 3, 2, 3], [4, 4], [1, 2]];
const lineOf = (label, index) => {
  const known = LINES.indexOf(SAME[label] || label);
  return known < 0 ? index % COLOURS.length : known;
};
const seen = new Map();

/** The last range of connections, channels and exchanges: 10 minutes. */
const [OBJECT_MOST, LATEST_S] = [1, 55];

/** The parameters that ask for samples of a range; `age`: in seconds, if not all of it; `step`: between two. */
export function rangeQuery(index, age = RANGES[index][0], step = RANGES[index][1]) {
  return ["lengths", "msg_rates", "data_rates", "node_stats"].map((name) => `${name}_age=${age}&${name}_incr=${step}`).join("&");
}

/** Ranges of a connection, a channel or an exchange: the parameters that ask for them, what its charts need, and buttons. */
export function useRange() {
  const [range, setRange] = useState(0);
  const query = range ? rangeQuery(range, undefined, 10) : rangeQuery(0, LATEST_S);
  return { query, range, choice: html`<${RangeChoice} range=${range} setRange=${setRange} most=${OBJECT_MOST} />` };
}

/** The colours of lines, as names in the style sheet. */
export const coloursOf = (labels) => labels.map((label, index) => COLOURS[lineOf(label, index)]);

/** Buttons for the range. `most`: the last of `RANGES` for which the broker has samples. */
export function RangeChoice({ range, setRange, most = RANGES.length - 1 }) {
  return html`<div class="ways" role="group" aria-label="Range of the charts">
    ${RANGES.slice(0, most + 1).map(([, , text], index) => html`<button key=${text} aria-pressed=${index === range ? "true" : "false"} onClick=${() => setRange(index)}>${text}</button>`)}
  </div>`;
}

/**
 * Times (s) and values of `series`: {label, value, details, isRate} from samples, or from what was seen as `key`; `now`:
 * the values that the page shows elsewhere. `since`: the first sample (ms); nothing is known of the time before.
 */
export const history = (key, at, series, range, since) => ({ ...pointsOf(key, at, series, range, since), now: series.map((one) => one.value) });

function pointsOf(key, at, series, range, since) {
  // The broker's last sample may stand at the end of an interval that is not over.
  const until = Math.max(at, ...series.map((one) => one.details?.samples?.[0]?.timestamp ?? 0)) / 1000;
  const span = [until - RANGES[range][0], until];
  const sampled = series.map((one) => one.details?.samples).filter((one) => one && one.length > 1);
  if (sampled.length) return { ...ofSamples(series, since || 0), span, isOwn: false };
  let points = seen.get(key);
  if (!points) seen.set(key, (points = []));
  const last = points[points.length - 1];
  if (at && (!last || last.at < at)) points.push({ at, values: series.map((one) => one.value ?? null) });
  if (points.length > KEPT) points.shift();
  return {
    times: points.map((one) => one.at / 1000),
    lines: series.map((_, index) => points.map((one) => one.values[index] ?? null)),
    span,
    isOwn: true,
  };
}

function ofSamples(series, since) {
  const byTime = new Map();
  series.forEach((one, index) => {
    const samples = [...(one.details?.samples || [])].reverse();
    samples.forEach((sample, place) => {
      let value = sample.sample;
      if (sample.timestamp < since) return;
      if (one.isRate) {
        const before = samples[place - 1];
        if (!before || before.timestamp < since) return;
        value = ((sample.sample - before.sample) * 1000) / (sample.timestamp - before.timestamp);
      }
      if (!byTime.has(sample.timestamp)) byTime.set(sample.timestamp, series.map(() => null));
      byTime.get(sample.timestamp)[index] = value;
    });
  });
  const times = [...byTime.keys()].sort((one, other) => one - other);
  return { times: times.map((one) => one / 1000), lines: series.map((_, index) => times.map((one) => byTime.get(one)[index])) };
}

/** Hours and minutes; seconds where the ticks are close together. */
function clock(at, ticks) {
  const time = new Date(at * 1000).toLocaleTimeString("sv");
  return ticks.length > 1 && ticks[1] - ticks[0] < 60 ? time : time.slice(0, 5);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const rateLine = (label, stats, name) => [label, rateOf(stats, name), stats?.[`${name}_details`], true];

export const lengthLines = (one) => [["ready", "Ready"], ["unacknowledged", "Unacknowledged"]].map(([name, label]) => [label, one[`messages_${name}`], one[`messages_${name}_details`]]);

export const MESSAGE_RATES = [["publish", "Published"], ["deliver_get", "Delivered"], ["ack", "Acknowledged"], ["redeliver", "Redelivered"]];

/** A chart of rates in statistics: those of `names`, [name, label], that they have. */
export const Rates = ({ stats, names, ...shared }) => html`<${Lines} title="Rates" ...${shared} shown=${rate} lines=${names.filter(([name]) => rateOf(stats, name) !== undefined).map(([name, label]) => rateLine(label, stats, name))} />`;

/** A chart of `lines`: [label, value now, samples, whether of a counter's rate]. `id`: of what they are about. */
export function Lines({ title, id, at, lines, range, since, shown, isWhole }) {
  const series = lines.map(([, value, details, isRate]) => ({ value, details, isRate }));
  const points = useMemo(() => history(`${id}\n${title}\n${lines.length}`, at, series, range, since), [at, range]);
  return html`<${Chart} title=${title} points=${points} labels=${lines.map(([label]) => label)} shown=${shown} isWhole=${isWhole} />`;
}

/** `points`: of `history`; `labels`: of its lines; `shown`: how a value is written. */
function Chart({ title, points, labels, shown, isWhole = false }) {
  const place = useRef(null);
  const plot = useRef(null);
  const span = useRef(points.span);
  const now = useRef(points.now);
  span.current = points.span;
  now.current = points.now;
  const { theme } = document.documentElement.dataset;
  useShared();
  useLayoutEffect(() => {
    const element = place.current;
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const size = () => ({ width: Math.max(200, element.clientWidth), height: 190 });
    plot.current = new window.uPlot(
      {
        ...size(),
        cursor: { drag: { x: false, y: false } },
        legend: { markers: { width: 0, fill: (chart, index) => chart.series[index].stroke(chart, index) } },
        scales: { x: { range: () => span.current }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.1 : 1] } },
        padding: [null, 28, null, null],
        axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map((at) => clock(at, ticks)) }, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => (isWhole && !Number.isInteger(tick) ? "" : shown(tick))) }],
        series: [
          { label: "Time", value: (_, at) => (at === null || at === undefined ? "now" : new Date(at * 1000).toLocaleTimeString("sv")) },
          ...labels.map((label, index) => ({
            label,
            stroke: colour(coloursOf(labels)[index]),
            dash: DASHES[lineOf(label, index)],
            width: 2,
            points: { show: points.times.length < 3 },
            // Without a pointer over the chart: what the page shows elsewhere.
            value: (chart, value, place, at) => {
              const known = at === null || at === undefined ? now.current[place - 1] : value;
              return known === null || known === undefined ? "–" : shown(known);
            },
          })),
        ],
      },
      [points.times, ...points.lines],
      element,
    );
    const watch = new ResizeObserver(() => plot.current.setSize(size()));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [labels.join("\n"), theme]);
  // In the frame in which the tiles change, and after a plot for other lines was made.
  useLayoutEffect(() => plot.current.setData([points.times, ...points.lines]), [points]);
  const last = points.now.map((value, index) => `${labels[index]} ${shown(value ?? 0)}`);
  return html`<figure class="chart">
    <figcaption>${title}${points.isOwn && html` <small>${several(points.times.length, "value")} since this page was opened</small>`}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}, now: ${last.join(", ")}`}></div>
  </figure>`;
}
