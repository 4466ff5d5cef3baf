// Requests. Everything goes to the broker that served the page.
import { useEffect, useRef, useState } from "./lib.js";
import { end, note, set, state, useShared } from "./state.js";

const BASE = new URL("api/", document.baseURI);
const PATIENCE_MS = 15000;
const BACKOFF_MAX_S = 30;
/** What the page asks by itself this long after its user last did something does not keep the session. */
const ATTENDED_MS = 60000;

let touchedAt = Date.now();
for (const kind of ["keydown", "pointerdown", "pointermove", "wheel"]) addEventListener(kind, () => (touchedAt = Date.now()), { capture: true, passive: true });

/** The broker said no. `status` 0: it did not answer. */
export class Refused extends Error {
  constructor(status, text, isLoggedOut = false) {
    super(text);
    this.status = status;
    this.isLoggedOut = isLoggedOut;
  }

  get isGone() {
    return this.status === 0 || this.status === 502 || this.status === 504;
  }
}

/** A path of the API from its segments. A browser takes . and .. for steps: the API takes away a NUL before them. */
export const path = (...segments) => segments.map((one) => encodeURIComponent(/^\0*\.\.?$/.test(one) ? `\0${one}` : one)).join("/");

/** The segment for an exchange: that without a name has one in paths. */
export const exchangeSegment = (name) => name || "amq.default";

/** Lists are narrowed to a virtual host by a header: its octets, in which a browser sends no control characters. */
function ofVhost(vhost) {
  const octets = String.fromCharCode(...new TextEncoder().encode(vhost));
  return vhost && !/[\x00-\x1f\x7f]/.test(octets) ? { "x-vhost": octets } : {};
}

function reasonOf(response, value) {
  if (value?.reason !== undefined) {
    const reason = typeof value.reason === "string" ? value.reason.trim() : JSON.stringify(value.reason);
    return value.detail ? `${reason.replace(/\.$/, "")}: ${value.detail}.` : reason;
  }
  const known = {
    401: "Not logged in.",
    404: "There is no such thing (any more).",
    405: "This broker cannot do that.",
    500: "The broker failed to answer; its log says why.",
    503: "The broker has too many requests at once.",
  };
  return known[response.status] || `${response.status} ${response.statusText}`;
}

/** The value that the API answers; null without a body. `patience`: milliseconds to wait. Throws: Refused. */
export async function ask(method, target, { body, form, headers, signal, patience: patienceMs = PATIENCE_MS } = {}) {
  const sent = { accept: "application/json", "x-requested-with": Date.now() - touchedAt < ATTENDED_MS ? "leveret" : "leveret-unattended", ...headers };
  if (body !== undefined) sent["content-type"] = "application/json";
  const patience = AbortSignal.timeout(patienceMs);
  const signals = signal ? [signal, patience] : [patience];
  let response, text;
  try {
    response = await fetch(new URL(target, BASE), {
      method,
      headers: sent,
      body: form ? new URLSearchParams(form) : body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any(signals),
      credentials: "same-origin",
      redirect: "error",
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, "The broker does not answer.");
  }
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new Refused(response.status, "The answer is not JSON.");
  }
  if (response.ok) return value;
  const isLoggedOut = response.status === 401 && !(value?.error === "not_authorised");
  if (isLoggedOut && state.user) end();
  throw new Refused(response.status, reasonOf(response, value), isLoggedOut);
}

/** Events that the broker sends as they happen. */
export const listen = (target) => new EventSource(new URL(target, BASE));

/**
 * Something that takes long, one at a time: [isBusy since when (ms) or 0, run, cancel]. `run(work)` gives the result of
 * `work(signal)`; null: it was cancelled, by the user, by another one or by leaving the page, or was refused.
 */
export function useLong() {
  const [since, setSince] = useState(0);
  const current = useRef(null);
  const cancel = () => current.current?.abort();
  useEffect(() => cancel, []);
  const run = async (work) => {
    cancel();
    const stop = (current.current = new AbortController());
    setSince(Date.now());
    try {
      const value = await work(stop.signal);
      return stop.signal.aborted ? null : value;
    } catch (error) {
      if (!stop.signal.aborted) note(error.message, true);
      return null;
    } finally {
      if (current.current === stop) setSince(0);
    }
  };
  return [since, run, cancel];
}

/** The rows of a list that nobody has answered yet. */
export const UNKNOWN = [];

/** Do something, say how it went, and whether it went well. */
export async function act(done, method, target, options) {
  try {
    const value = await ask(method, target, options);
    if (done) note(done);
    return { value };
  } catch (error) {
    note(error.message, true);
    return null;
  }
}

/**
 * What a GET answers, again and again: one request at a time, more seldom while the broker does not answer.
 * Old values stay while there are no new ones. Returns {data, at, error, isLoading, isRefused, isHere, rows, reload};
 * `rows`: the data, if it is a list, or `UNKNOWN`; `isHere`: there are data, and the broker does not refuse them now.
 */
export function usePoll(target, { isOnce = false, headers } = {}) {
  const { every, vhost } = useShared();
  const [view, setView] = useState({ data: undefined, at: 0, error: null, isLoading: true });
  const [turn, setTurn] = useState(0);
  const shown = useRef(null);
  useEffect(() => {
    if (target === null) return undefined;
    const stop = new AbortController();
    let timer = 0;
    let failures = 0;
    const place = target.split("?")[0];
    if (shown.current !== place) setView({ data: undefined, at: 0, error: null, isLoading: true });
    shown.current = place;
    async function look() {
      try {
        const data = await ask("GET", target, {
          signal: stop.signal,
          headers: { ...ofVhost(vhost), ...headers },
        });
        if (stop.signal.aborted) return;
        failures = 0;
        if (state.gone) set({ gone: null });
        setView({ data, at: Date.now(), error: null, isLoading: false });
      } catch (error) {
        if (stop.signal.aborted || error.isLoggedOut) return;
        if (error.isGone) {
          failures += 1;
          set({ gone: { since: state.gone ? state.gone.since : Date.now(), failures } });
        }
        setView((old) => ({ ...old, error, isLoading: false }));
      }
      const isBehind = failures > 0 && every > 0;
      const pause = isBehind ? Math.min(BACKOFF_MAX_S, 2 ** (failures - 1)) : every;
      if ((isBehind || !isOnce) && pause > 0) timer = setTimeout(look, pause * 1000);
    }
    look();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [target, every, vhost, turn, isOnce]);
  const rows = Array.isArray(view.data) ? view.data : target !== null && view.isLoading ? UNKNOWN : [];
  const isRefused = Boolean(view.error && !view.error.isGone);
  return { ...view, rows, isRefused, isHere: Boolean(view.data) && !isRefused, reload: () => setTurn((count) => count + 1) };
}
