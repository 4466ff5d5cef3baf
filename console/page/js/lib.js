// The one door to the vendored libraries.
import { h, render } from "../vendor/preact.js";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import htm from "../vendor/htm.js";

/** Characters that are not seen, or turn the text behind them around: a name with them can look like another one. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
/** Those that turn it around: no text but a body may have them. */
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** A name with such characters as their numbers. */
export const visible = (text, hidden = UNSEEN) =>
  typeof text === "string" ? text.replace(hidden, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`) : text;

/** An element; what stands in one of the class `name` is made visible. A button submits nothing, unless it says so. */
function element(type, props, ...children) {
  const hidden = /\bname\b/.test(props?.class) ? UNSEEN : TURNING;
  return h(type, type === "button" ? { type, ...props } : props, ...(type === "pre" ? children : children.map((one) => visible(one, hidden))));
}

export const html = htm.bind(element);
export { render, useEffect, useLayoutEffect, useMemo, useRef, useState };
