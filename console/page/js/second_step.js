// The second step: what the broker says that a deed would do, in its numbers, before it is done.
import { act, ask, path } from "./api.js";
import { confirm } from "./parts.js";
import { note } from "./state.js";

/** How many messages are lost without the name typed. */
export const TYPED_ABOVE = 1000;

/**
 * Ask for a preview, show it, and wait for the answer. `target`, `body`: of the preview. `pick`: its sentences.
 * `isQuiet`: no question if nothing would happen. `lost`: of the preview, how many messages. The rest: see `confirm`.
 * Resolves as `confirm`, and to false if the broker refuses.
 */
export async function secondStep({ target, body, pick = (found) => found.says, lost = () => 0, isQuiet = false, name = "", ...question }) {
  let found;
  try {
    found = await ask(body === undefined ? "GET" : "POST", target, { body });
  } catch (error) {
    note(error.message, true);
    return false;
  }
  const says = pick(found);
  if (isQuiet && !says.length) return true;
  const rows = (found.concerned || []).filter((one) => one.dropped).map((one) => `${one.queue}: ${one.dropped} of ${one.ready}`);
  const typed = name && lost(found) > TYPED_ABOVE ? name : "";
  return confirm({ typed, ...question, says: says.length ? says : ["No message that is there is dropped."], rows });
}

/** Delete an object: `base` and `names` are its path, `what` is its kind. `more`: of the second step. Resolves to whether it is deleted. */
export async function remove(base, what, names, more) {
  const name = names[names.length - 1];
  const question = { target: path("leveret", "preview", base, ...names), title: `Delete this ${what}`, text: `${name}. This cannot be undone.`, verb: "Delete", name, ...more };
  return (await secondStep(question)) && act(`${name} is deleted.`, "DELETE", path(base, ...names));
}

/** Of the preview of a queue: the messages that go. */
export const ofQueue = (found) => found.ready + found.unacked + found.scheduled;
/** Of the preview of rules. */
export const dropped = (found) => found.dropped + found.dead_lettered;
