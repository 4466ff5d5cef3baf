// What the user may do, and why not: the reason stands beside what is grey.
import { useEffect, useState } from "./lib.js";
import { ask, path } from "./api.js";
import { several } from "./format.js";
import { has, state } from "./state.js";

/** Why a user without these tags may not; empty: with one of them, or as an administrator, the user may. */
export const lacksTag = (...tags) => (has("administrator", ...tags) ? "" : `needs the tag ${[...tags, "administrator"].join(" or ")}`);

/** Why a user may not do this in a virtual host, by its patterns: those that are null, or empty, allow nothing. */
function reason(found, action, vhost) {
  if (!found || found[action]) return "";
  if (!found.patterns) return `you have no permissions in the virtual host ${vhost}`;
  const pattern = found.patterns[action];
  return `needs ${action} access; your pattern for that in ${vhost} is ${pattern || "empty"}`;
}

/**
 * What the user may do with a queue or an exchange: a function from "configure", "write" or "read" to the reason why
 * not; empty: the user may, or it is not known yet. `kind`: "queue" or "exchange"; `vhost` null: of none.
 */
export function useMay(vhost, kind, name) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    if (vhost === null) return undefined;
    const stop = new AbortController();
    setFound(null);
    ask("GET", `${path("leveret", "may", vhost)}?${new URLSearchParams({ [kind]: name })}`, { signal: stop.signal }).then(setFound, () => {});
    return () => stop.abort();
  }, [vhost, kind, name]);
  return (action) => reason(found, action, vhost);
}

/** What an empty list says: `nothing`, if the user sees all; else that there may be more. */
export function emptiness(nothing) {
  const hidden = state.hiddenVhosts;
  if (!hidden) return nothing;
  return `${nothing} This is only what you may see: ${several(hidden, "virtual host")} in which you have no permissions ${hidden === 1 ? "is" : "are"} not shown.`;
}
