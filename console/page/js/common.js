// What most pages need, by one name.
export * from "./api.js";
export * from "./columns.js";
export * from "./format.js";
export * from "./lib.js";
export * from "./links.js";
export * from "./list.js";
export * from "./may.js";
export * from "./parts.js";
export * from "./route.js";
export * from "./second_step.js";
export * from "./state.js";
