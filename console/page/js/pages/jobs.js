// What changes many messages: dead letters back to where they came from, messages elsewhere or away, and their jobs.
import { act, ago, ask, column, confirm, count, Danger, Facts, html, lacksTag, me, moment, named, note, Panel, path, QueueLink, rate, Rows, several, TYPED_ABOVE, useEffect, useMay, usePoll, useRef, useState, Waiting, WIDE } from "../common.js";
import { CommandForm, MATCHES } from "../form.js";
import { Messages } from "../publish.js";

const ACTS = {
  replay: ["Replay", "to where each came from"],
  "replay queue": ["Replay", "to the queue that each died in"],
  move: ["Move", "to the queue below"],
  discard: ["Discard", "for good"],
};
/** What a choice of messages may say; what is empty is left out. */
const isSet = (value) => value !== "" && value !== undefined && !(typeof value === "object" && !Object.keys(value).length);

/** Choose messages of a queue, see what would become of them, then do it. `first`: what the form begins with;
 * `positions`: those that it is about, all by default. `why`: the reason why the user may not. */
export function Many({ vhost, queue, first = {}, positions, why = "" }) {
  const [found, setFound] = useState(null);
  const [job, setJob] = useState(null);
  const place = (verb) => path("leveret", "queues", vhost, queue, verb);
  const own = { what: { options: Object.entries(ACTS).map(([key, [verb, words]]) => [key, `${verb} ${words}`]) }, to_queue: { label: "Queue to move to", hint: "", when: (values) => values.what === "move" } };
  const result = useRef(null);
  useEffect(() => (found || job !== null) && result.current.scrollIntoView({ block: "nearest" }), [found, job]);
  const look = async ({ what, to_queue: to, ...choice }) => {
    const [verb, where] = what.split(" ");
    const body = Object.fromEntries(Object.entries(choice).filter(([, value]) => isSet(value)));
    if (positions) body.positions = positions;
    if (verb === "move") body.to = { queue: to };
    if (where) body.to = where;
    setFound(null);
    setJob(null);
    const done = await act("", "POST", place(verb), { body: { ...body, dry: true } });
    if (done) setFound({ what, verb, body, ...done.value });
    return false;
  };
  const start = async () => {
    const [label, words] = ACTS[found.what];
    const many = several(found.matched, "message");
    const text = `${many} of ${queue} ${found.verb === "move" ? `to ${found.body.to.queue}` : words}${found.body.rate ? `, ${found.body.rate} a second` : ""}. ${found.verb === "discard" ? "This cannot be undone." : "It can be stopped; what has gone stays there."}`;
    if (!(await confirm({ title: `${label} ${many}`, text, verb: label, typed: found.matched > TYPED_ABOVE ? queue : "" }))) return;
    const done = await act("The job has begun.", "POST", place(found.verb), { body: found.body });
    if (done) {
      setJob(done.value.job);
      setFound(null);
    }
  };
  return html`
    <${CommandForm} key=${JSON.stringify(first)} of="move" only=${`what to_queue cause origin ${MATCHES} limit rate`} values=${{ what: "replay", ...first }} own=${own} name="Choose messages" kind="many" verb="Dry run" onSubmit=${look} why=${why} />
    <div aria-live="polite" ref=${result}>${found && html`<${Found} found=${found} />
      ${found.matched > 0 && html`<${Danger} label=${`${ACTS[found.what][0]} ${several(found.matched, "message")} …`} onClick=${start} />`}`}
      ${job !== null && html`<${Progress} key=${job} id=${job} />`}</div>`;
}

const reasons = (kept) => kept.map((one) => `${count(one.count)}: ${one.reason}`).join("; ");

function Found({ found }) {
  return html`<h3>Dry run: ${several(found.matched, "message")} of ${count(found.looked_at)} looked at</h3>
    <${Facts} rows=${[
      ["Would go", found.targets.map((one) => `${count(one.count)} to ${one.to}`).join("; ")],
      ["Would stay", reasons(found.kept)],
      ["Beware", found.warnings.join("; ")],
      ["Not looked at", found.is_complete ? "" : `${count(found.total - found.looked_at)}: nothing is known of these`],
    ]} />
    ${found.sample.length > 0 && html`<details><summary>The first ${count(found.sample.length)}</summary><${Messages} messages=${found.sample} /></details>`}`;
}

async function cancel(job, reload) {
  const text = `Job ${job.id} ends. What it has done until now stays: ${several(job.done, "message")}.`;
  if ((await confirm({ title: "Cancel this job", text, verb: "Cancel the job" })) && (await act("The job is cancelled.", "DELETE", path("leveret", "jobs", job.id)))) reload();
}

function Bar({ job }) {
  const isLimited = job.total < job.to_look_at;
  const [done, total] = isLimited ? [job.done, job.total] : [job.looked_at, job.to_look_at];
  return html`<progress max=${total || 1} value=${job.ended ? total || 1 : done} aria-label="Progress of job ${job.id}"></progress> ${count(job.done)} done`;
}

const State = ({ job }) => html`${job.state}${job.waits_for && html` <small>for ${job.waits_for}</small>`}${job.error && html` <small class="fault">${job.error}</small>`}`;

function Progress({ id }) {
  const view = usePoll(path("leveret", "jobs", id));
  const job = view.data;
  return html`<${Waiting} view=${view} what="the job" />${job && html`
    <h3>Job ${id}: <${State} job=${job} /></h3>
    <p><${Bar} job=${job} />, ${rate(job.per_second)}</p>
    <${Facts} rows=${[["Stayed", reasons(job.kept)]]} />
    ${!job.ended && html`<${Danger} label="Cancel the job …" onClick=${() => cancel(job, view.reload)} />`}`}`;
}

export function Jobs() {
  const view = usePoll("leveret/jobs");
  const jobs = view.data || [];
  const columns = [
    { title: "Job", cell: (job) => html`${job.id}: ${job.command}` },
    { title: "Queue", cell: (job) => html`<${QueueLink} vhost=${job.vhost} name=${job.queue} /> <small>${job.to}</small>` },
    { title: "State", cell: (job) => html`<${State} job=${job} />` },
    { title: "Progress", cell: (job) => html`<${Bar} job=${job} />` },
    { title: "Stayed", isWide: true, cell: (job) => reasons(job.kept) },
    column("Rate", "per_second", rate, WIDE),
    { title: "By", isWide: true, cell: (job) => named(job.by || "leveret ctl") },
    column("Begun", "started", ago),
    { title: "", cell: (job) => !job.ended && html`<${Danger} label="Cancel …" onClick=${() => cancel(job, view.reload)} why=${job.by === me() ? "" : lacksTag()} />` },
  ];
  return html`<h1>Jobs</h1>
    <p class="dim">Moves, replays and discards of many messages. A restart ends them; what they have moved stays moved.</p>
    <${Waiting} view=${view} what="jobs" />
    ${view.data && (jobs.length ? html`<${Rows} rows=${jobs} columns=${columns} caption="Jobs" by="id" />`
      : html`<p class="empty">${lacksTag("monitoring") ? "You have started no job since the broker started; those of others need the tag monitoring." : "No job has run since the broker started."}</p>`)}`;
}

/** All dead letters, counted once, when the first ones are not all. */
function useWhole(first) {
  const [whole, setWhole] = useState({ data: null, isBusy: false });
  const isPart = Boolean(first) && first.items.some((one) => one.looked_at < one.messages);
  useEffect(() => {
    if (!isPart) return undefined;
    const stop = new AbortController();
    setWhole((old) => ({ ...old, isBusy: true }));
    ask("GET", "leveret/dead-letters?all=true", { signal: stop.signal })
      .then((data) => setWhole({ data, isBusy: false }), (error) => stop.signal.aborted || (note(error.message, true), setWhole({ data: null, isBusy: false })));
    return () => stop.abort();
  }, [isPart]);
  return whole;
}

/** A queue's causes of all its letters, if they were counted. */
function better(one, whole) {
  const counted = whole?.items.find((other) => other.vhost === one.vhost && other.queue === one.queue);
  return counted?.looked_at > one.looked_at ? { ...one, ...counted } : one;
}

export function DeadLetters() {
  const view = usePoll("leveret/dead-letters");
  const { data: whole, isBusy } = useWhole(view.data);
  const queues = view.data?.items.map((one) => better(one, whole)) || [];
  return html`<h1>Dead letters</h1>
    <p class="dim">The queues that dead letters of others go to; what is there, by what they died of, and where.</p>
    <${Waiting} view=${view} what="dead letters" />
    ${isBusy && html`<p class="dim" role="status">Counting all of them …</p>`}
    ${view.data && !queues.length && html`<p class="empty">No queue has a dead-letter queue.</p>`}
    ${queues.map((queue) => html`<${Letters} key=${`${queue.vhost}\n${queue.queue}`} queue=${queue} />`)}`;
}

function Letters({ queue }) {
  const why = useMay(queue.vhost, "queue", queue.queue)("read");
  const [first, setFirst] = useState(null);
  const choose = ({ cause, origin }) => setFirst({ cause, origin });
  const columns = [
    { title: "Cause", cell: (one) => one.cause || "none is told" },
    column("Died in", "origin"),
    column("Exchange", "exchange", (name) => named(name || "(default)"), WIDE),
    column("Messages", "count", count),
    { title: "", cell: (one) => html`<button onClick=${() => choose(one)}>Choose …</button>` },
  ];
  const aside = html`<span>${several(queue.messages, "message")}${queue.oldest && html`, the oldest of <time>${moment(queue.oldest * 1000)}</time>`}</span>`;
  return html`<${Panel} id=${`letters-${queue.vhost}-${queue.queue}`} title=${html`<${QueueLink} vhost=${queue.vhost} name=${queue.queue} />`} aside=${aside}>
    <${Rows} rows=${queue.causes} columns=${columns} caption=${`Dead letters in ${queue.queue}`} by="cause origin exchange" empty="None." />
    ${queue.looked_at < queue.messages && html`<p class="dim">Of the first ${count(queue.looked_at)}.</p>`}
    ${queue.causes.length > 1 && html`<button onClick=${() => choose({})}>Choose among all …</button>`}
    ${first && html`<${Many} vhost=${queue.vhost} queue=${queue.queue} first=${first} why=${why} />`}
  <//>`;
}
