// A client of `leveret test-server`, for tests in Node 18 and later. One file without dependencies: copy it, or
// `leveret test-server --client node > leveret.mjs`. docs/test-server.md describes the operations.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** An assertion of the broker failed; the message has the reason. */
export class NotSo extends Error {
  name = "NotSo";
}

/**
 * Start a test broker, which ends with this process; or use the one of LEVERET_TEST_CONTROL and LEVERET_TEST_TOKEN.
 * `program`: the command, by default LEVERET or `leveret`; `args`: of `leveret test-server`.
 */
export async function startBroker({ program = process.env.LEVERET ?? "leveret", args = [] } = {}) {
  const { LEVERET_TEST_CONTROL: control, LEVERET_TEST_TOKEN: token } = process.env;
  if (control) {
    const broker = new Broker({ control, token });
    broker.url = (await broker.call("info")).url;
    return broker;
  }
  const child = spawn(program, ["test-server", "--with-parent", ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout });
  const failed = once(child, "error").then(([error]) => {
    throw new Error(`cannot start ${program}: pip install leveret, or set LEVERET to its path`, { cause: error });
  });
  const ended = once(child, "exit").then(([code]) => Promise.reject(new Error(`${program} test-server ended: ${code}`)));
  failed.catch(() => {});
  ended.catch(() => {});
  const [line] = await Promise.race([once(lines, "line"), failed, ended]);
  child.unref();
  child.stdin.unref();
  child.stdout.unref();
  return new Broker({ ...JSON.parse(line), child });
}

/** A test broker, or with `vhost` one virtual host of it. */
export class Broker {
  constructor({ url, control, token, child, vhost }) {
    Object.assign(this, { url, control, token, child, vhost });
  }

  /** Any operation by name. Rejects with NotSo if an assertion failed, with Error for an invalid argument. */
  async call(operation, args = {}) {
    const answer = await fetch(`${this.control}/v1/${operation}`, {
      method: "POST",
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: JSON.stringify(args),
    }).catch((error) => {
      throw new Error(`no test server answers at ${this.control}`, { cause: error });
    });
    const { result, error } = await answer.json();
    if (answer.status === 417) throw new NotSo(error);
    if (!answer.ok) throw new Error(error);
    return result;
  }

  /** Creates a virtual host, for tests that run at the same time. */
  async newVhost(name) {
    const made = await this.call("vhosts.create", name === undefined ? {} : { name });
    return new Broker({ ...this, url: made.url, vhost: made.name });
  }

  /** Resets this virtual host, or the whole broker. */
  reset() {
    return this.call("reset", this.#here({}));
  }

  published(args = {}) {
    return this.call("published", this.#here(args));
  }

  history(...kinds) {
    return this.call("history", this.#here({ kinds }));
  }

  queue(name) {
    return this.call("queue", this.#here({ name }));
  }

  assertPublished(args) {
    return this.call("assert_published", this.#here(args));
  }

  assertNotPublished(args) {
    return this.call("assert_not_published", this.#here(args));
  }

  assertQueue(name, args = {}) {
    return this.call("assert_queue", this.#here({ name, ...args }));
  }

  /** Waits until no message is ready, unacknowledged or scheduled; `timeout` in seconds. */
  settled(args = {}) {
    return this.call("settled", this.#here(args));
  }

  /** Advances virtual time: `{ hours: 2 }`. */
  advance(time) {
    return this.call("clock.advance", time);
  }

  /** Starts a fault; returns the function that ends it. */
  async fault(fault, args = {}) {
    const { id } = await this.call("faults.start", this.#here({ fault, ...args }));
    return () => this.call("faults.stop", { id });
  }

  /** Delete this virtual host, or end the broker that `startBroker` started. */
  async close() {
    if (this.vhost !== undefined) await this.call("vhosts.delete", { name: this.vhost });
    else if (this.child?.exitCode === null) {
      this.child.ref();
      this.child.stdin.end();
      await once(this.child, "exit");
    }
  }

  #here(args) {
    return this.vhost === undefined ? args : { vhost: this.vhost, ...args };
  }
}
