// What the whole page knows: who is logged in, what he chose, whether the broker answers. Choices stay in the browser.
import { useEffect, useState } from "./lib.js";

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
  left: null, // the same of a session that ended by itself, until the next login
  hiddenVhosts: 0, // how many the user does not see
  vhost: "", // empty: all
  every: 5, // seconds between two requests; 0: never again
  theme: "auto",
  gone: null, // {since, failures} while the broker does not answer
  notes: [], // what was done, and what was refused
  question: null, // what a second step asks
  ...choices(),
};

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
  for (const listener of listeners) listener();
}

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

/** Whose page is shown, also behind the login that follows the end of a session. */
const shownUser = () => state.user || state.left;
export const has = (...tags) => Boolean(shownUser()) && tags.some((tag) => shownUser().tags.includes(tag));
/** The name of the user whose page is shown. */
export const me = () => shownUser().name;
/** Whether the broker has a package, whose page is shown then. */
export const brings = (name) => Boolean(shownUser()) && shownUser().packages.includes(name);
export const isAdministrator = () => has("administrator");
export const isMonitor = () => has("administrator", "monitoring");
export const isPolicymaker = () => has("administrator", "policymaker");
