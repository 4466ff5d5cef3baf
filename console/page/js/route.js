// Where we are: #/queues/%2F/orders?page=2. Every page has an address, so that links can be shared and back works.
import { useEffect, useState } from "./lib.js";

export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** {segments, query} of the address. */
export function here() {
  const [place, search] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return {
    segments: place.split("/").filter((one) => one !== "").map(decoded),
    query: Object.fromEntries(new URLSearchParams(search || "")),
  };
}

export function to(segments, query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined));
  const text = search.toString();
  return `#/${segments.map((one) => encodeURIComponent(one)).join("/")}${text ? `?${text}` : ""}`;
}

export const go = (segments, query) => location.assign(to(segments, query));

/** Change the query of this page without a new step for back. */
export function refine(changes) {
  const { segments, query } = here();
  history.replaceState(null, "", to(segments, { ...query, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(here);
  useEffect(() => {
    const listener = () => setRoute(here());
    addEventListener("hashchange", listener);
    listener(); // it may have changed since it was drawn
    return () => removeEventListener("hashchange", listener);
  }, []);
  return route;
}
