// The one door to the vendored libraries.
import { Fragment, h, render } from "../vendor/preact.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { Fragment, render, useEffect, useMemo, useRef, useState };
