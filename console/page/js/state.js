// What the whole page knows: who is logged in, what he chose, whether the broker answers. Choices stay in the browser.
import { useEffect, useRef, useState } from "./lib.js";

const CHOICES = "leveret-choices";

function choices() {
  try {
    return JSON.parse(localStorage.getItem(CHOICES)) || {};
  } catch {
    return {};
  }
}

const listeners = new Set();
export const state = {
  user: null, // {name, tags}
  left: null, // the name of the user whose session ended by itself, until the next login
  hiddenVhosts: 0, // how many the user does not see
  vhost: "", // empty: all
  every: 5, // seconds between two requests; 0: never again
  theme: "auto",
  gone: null, // {since, failures} while the broker does not answer
  notes: [], // what was done, and what was refused
  question: null, // what a second step asks
  ...choices(),
};

const dark = matchMedia("(prefers-color-scheme: dark)");

/** The colours that the user chose, or else those of the system. */
const colours = () => (state.theme === "auto" ? (dark.matches ? "dark" : "light") : state.theme);

/** Change what is known; who looks is told. */
export function set(changes) {
  Object.assign(state, changes);
  if ("vhost" in changes || "every" in changes || "theme" in changes) {
    const { vhost, every, theme } = state;
    try {
      localStorage.setItem(CHOICES, JSON.stringify({ vhost, every, theme }));
    } catch {
      // a browser that keeps nothing
    }
  }
  document.documentElement.dataset.theme = colours();
  for (const listener of listeners) listener();
}

set({}); // shows the colours
dark.addEventListener("change", () => set({}));

/** The state, for a component that is drawn anew when it changes. */
export function useShared() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((count) => count + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}

/** Typed in a session that ended by itself, by place and name. */
const kept = new Map();

/** A user is here, or has left: nothing of another session stays. */
export function enter(user) {
  if (!user || user.name !== state.left) kept.clear();
  set({ user, left: null, notes: [] });
}

/** The session ended by itself: its page goes, but for what `useKept` keeps for the next login of the same user. */
export const end = () => set({ user: null, left: state.user.name, notes: [], question: null });

/** `useState` for what a user types or unfolds. `only`: what of the value outlives the end of the session. */
export function useKept(name, initial, only = (value) => value) {
  const [key] = useState(() => `${location.hash.split("?")[0]}\n${name}`);
  const [value, setValue] = useState(() => kept.get(key) ?? initial);
  const latest = useRef(null);
  latest.current = value;
  useEffect(() => {
    kept.delete(key);
    return () => state.left && kept.set(key, only(latest.current));
  }, []);
  return [value, setValue];
}

let noteId = 0;

/** Say what was done. A fault stays until it is closed. */
export function note(text, isFault = false) {
  const id = ++noteId;
  set({ notes: [...state.notes.slice(-3), { id, text, isFault }] });
  if (!isFault) setTimeout(() => forget(id), 6000);
}

export function forget(id) {
  set({ notes: state.notes.filter((one) => one.id !== id) });
}

export const has = (...tags) => Boolean(state.user) && tags.some((tag) => state.user.tags.includes(tag));
export const me = () => state.user.name;
/** Whether the broker has a package, whose page is shown then. */
export const brings = (name) => Boolean(state.user) && state.user.packages.includes(name);
export const isAdministrator = () => has("administrator");
export const isMonitor = () => has("administrator", "monitoring");
export const isPolicymaker = () => has("administrator", "policymaker");
