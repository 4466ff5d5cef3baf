// What the broker sends as it happens, the latest first.
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { listen } from "./api.js";
import { several } from "./format.js";
import { lacksTag } from "./may.js";

const KEPT = 200;
/** Between two drawings. */
const DRAWN_EVERY_MS = 250;

/**
 * The latest events of that name, newest first: {rows, waiting, missed, ended, isPaused, pause}. `waiting`: came while it is paused;
 * `missed`: so many the broker no longer had when they were to be sent.
 */
function useEvents(target, name, turn) {
  const [drawn, draw] = useState({ rows: [], waiting: 0, missed: 0 });
  const [ended, setEnded] = useState("");
  const [isPaused, setPaused] = useState(false);
  const gathered = useRef({ texts: [], count: 0, missed: 0, isPaused: false, timer: 0, frame: 0, target }).current;
  const plan = () => {
    if (gathered.timer) return;
    gathered.timer = setTimeout(() => {
      gathered.frame = requestAnimationFrame(() => {
        gathered.timer = 0;
        const { texts, count: waiting, missed } = gathered;
        if (gathered.isPaused) return draw((old) => ({ ...old, waiting, missed }));
        const fresh = texts.slice(-KEPT).reverse().map((text) => JSON.parse(text));
        gathered.texts = [];
        gathered.count = 0;
        return draw((old) => ({ rows: [...fresh, ...old.rows].slice(0, KEPT), waiting: 0, missed }));
      });
    }, DRAWN_EVERY_MS);
  };
  const pause = (isOn) => {
    gathered.isPaused = isOn;
    setPaused(isOn);
    plan();
  };
  useEffect(() => {
    setEnded("");
    if (gathered.target !== target) {
      Object.assign(gathered, { target, texts: [], count: 0, missed: 0 });
      draw({ rows: [], waiting: 0, missed: 0 });
    }
    const source = listen(target);
    source.addEventListener(name, (event) => {
      gathered.count += 1;
      if (gathered.texts.push(event.data) >= 2 * KEPT) gathered.texts = gathered.texts.slice(-KEPT);
      plan();
    });
    source.addEventListener("gap", (event) => {
      gathered.missed += JSON.parse(event.data).dropped;
      plan();
    });
    source.onerror = () => source.readyState === 2 && setEnded("the broker refused it");
    source.addEventListener("cut", (event) => {
      source.close();
      setEnded(JSON.parse(event.data).reason);
    });
    return () => {
      source.close();
      clearTimeout(gathered.timer);
      cancelAnimationFrame(gathered.frame);
      gathered.timer = 0;
    };
  }, [target, name, turn]);
  return { ...drawn, ended, isPaused, pause };
}

/** A page of events as they come. `draw`: the rows as a table; `children`: what chooses among them. */
export function Stream({ title, about, ...rest }) {
  const why = lacksTag("monitoring");
  return html`<h1>${title}</h1>${why ? html`<p class="empty" role="alert">Hidden: ${why}.</p>` : html`<p class="dim">${about}, the latest ${KEPT}, newest first.</p><${Open} ...${rest} />`}`;
}

function Open({ target, name, what, draw, children }) {
  const [turn, setTurn] = useState(0);
  const { rows, waiting, missed, ended, isPaused, pause } = useEvents(target, name, turn);
  const table = useMemo(() => rows.length > 0 && draw(rows), [rows]);
  return html`<div class="buttons">${children}
      <button aria-pressed=${isPaused} onClick=${() => pause(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
      ${isPaused && html`<span role="status">Paused; ${several(waiting, what)} since.</span>`}
      ${missed > 0 && html`<span class="warning" role="status">Missed: ${several(missed, what)}, which the broker no longer had.</span>`}
      ${ended && html`<span class="fault" role="alert">Ended: ${ended}.</span> <button onClick=${() => setTurn(turn + 1)}>Begin again</button>`}</div>
    ${table || html`<p class="empty">Nothing yet.</p>`}`;
}
