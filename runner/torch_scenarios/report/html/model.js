// The data of the page: lines of JSON, a head and a body for each case, then the whole run.
// case.py writes what `openCase` reads.

const STATES = { d: "done", r: "raised", b: "blocked", p: "possibly blocked", u: "running" };
const LETTERS = { done: "d", raised: "r", blocked: "b", possibly_blocked: "p", running: "u" };
const STUCK = "bpu";
const ORDER = ["FAILED", "FLAKY", "INVALID", "INCONCLUSIVE", "UNSUPPORTED", "PASSED"];
const GLYPHS = { FAILED: "✕", FLAKY: "≈", INVALID: "!", INCONCLUSIVE: "?", UNSUPPORTED: "–", PASSED: "✓" };

const byId = (id) => document.getElementById(id);

/** Return a new element; text is only ever text, never markup. */
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Return the parts of a name, or a path, with places between them where a line may break. */
function breakable(name) {
  return name.split(/(?<=[_[,./-])/).flatMap((part) => [part, make("wbr")]);
}

async function readRun() {
  if (!window.DecompressionStream) throw new Error("it needs a browser of 2023 or later");
  const binary = atob(byId("data").textContent);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const lines = (await new Response(stream).text()).split("\n");
  lines.pop(); // the last line ends, too
  const run = JSON.parse(lines.pop());
  run.cases = [];
  for (let at = 0; at < lines.length; at += 2) {
    run.cases.push({ ...JSON.parse(lines[at]), body: lines[at + 1], number: at / 2 });
  }
  const rank = (each) => ORDER.indexOf(each.verdict);
  run.cases.sort((a, b) => rank(a) - rank(b) || a.number - b.number);
  return run;
}

/** Return a case with everything that it shows. */
function openCase(head) {
  const body = JSON.parse(head.body);
  const wrong = new Set();
  for (const place of body.places) {
    if (place.index === undefined || place.index < 0) continue;
    for (const rank of place.ranks) {
      wrong.add(`${place.index}|${place.iteration}|${rank}`);
      if (place.name) wrong.add(`${place.index}|${place.iteration}|${rank}|${place.name}`);
    }
  }
  return { ...head, ...body, timelines: new Timelines(body), wrong };
}

/** The timelines of a case by their witness, each made when it is first asked for. */
class Timelines {
  constructor(body) {
    this.body = body;
    this.made = new Map();
    this.folded = null; // the folded timelines, once equal ranks are one lane
  }

  /** Let equal ranks of a case be one lane, or each have its own. */
  fold(opened, on) {
    this.folded = on ? new Map() : null;
    this.opened = opened;
  }

  has(witness) {
    return Boolean(this.body[witness]);
  }

  of(witness) {
    const whole = this.whole(witness);
    if (!whole || !this.folded) return whole;
    if (!this.folded.has(witness)) this.folded.set(witness, foldLanes(this.opened, whole));
    return this.folded.get(witness);
  }

  /** Return the timeline that has a lane for each rank, however the lanes are drawn. */
  whole(witness) {
    if (!this.has(witness)) return null;
    if (!this.made.has(witness)) this.made.set(witness, unpack({ ...this.body.predicted, ...this.body[witness] }));
    return this.made.get(witness);
  }
}

/** Return a timeline (runner/torch_scenarios/timeline/codec.py says how it is written) with a column a fact. */
function unpack(packed) {
  const { texts } = packed;
  const letters = texts.map((text) => LETTERS[text]);
  const lanes = packed.lanes.map(({ rank, ending, died, host, initial, spans }) => {
    const count = spans.length;
    const lane = {
      rank, ending, died, host: host || "", initial, count, state: new Array(count), raised: new Array(count),
      step: new Int32Array(count), iteration: new Int32Array(count), column: new Int32Array(count),
      start: new Float64Array(count), end: new Float64Array(count), values: new Array(count),
    };
    for (let at = 0; at < count; at += 1) {
      const span = spans[at];
      lane.step[at] = span[0];
      lane.iteration[at] = span[1];
      lane.state[at] = letters[span[2]];
      lane.column[at] = span[3];
      lane.start[at] = span[4];
      lane.end[at] = span[5] ?? NaN;
      lane.raised[at] = span[7] == null ? null : texts[span[7]];
      lane.values[at] = span[9] || null;
    }
    return lane;
  });
  const meetings = packed.meetings.map(([, kind, label, missing, complete, spans, completed]) => (
    { kind, label, missing, complete, spans, completed: completed || spans }
  ));
  const edges = packed.edges.map(([waiter, peer, because, cycle, sure]) => ({ waiter, peer, because, cycle, sure }));
  const laneOf = new Map(lanes.map((lane, at) => [lane.rank, at]));
  const keys = packed.iterations.map(String);
  return { ...packed, lanes, meetings, edges, laneOf, keys, columns: Math.max(1, packed.columns) };
}

/** Return one span: what it was, how it went. */
function spanAt(timeline, lane, position) {
  const row = timeline.lanes[lane];
  const [index, label, kind, operation, group, line, place] = timeline.steps[row.step[position]];
  return {
    lane, position, rank: row.rank, index, label, kind, operation, group, line, place,
    iteration: timeline.iterations[row.iteration[position]],
    state: row.state[position], column: row.column[position],
    took: row.end[position] - row.start[position], raised: row.raised[position],
  };
}

/** Return pairs of a name and what it held. */
function pairs(timeline, flat) {
  const found = [];
  for (let at = 0; at < flat.length; at += 2) {
    found.push([timeline.texts[flat[at]], timeline.texts[flat[at + 1]]]);
  }
  return found;
}

/** Return everything that a rank holds before the span at `position`. */
function heldBefore(timeline, lane, position) {
  const row = timeline.lanes[lane];
  const held = new Map(pairs(timeline, row.initial));
  for (let at = 0; at < position; at += 1) {
    if (row.values[at]) for (const [name, text] of pairs(timeline, row.values[at])) held.set(name, text);
  }
  return held;
}

/** Return where a lane takes this instance of a step, or -1. */
function positionOf(timeline, lane, index, iteration) {
  const row = timeline.lanes[lane];
  const { steps, keys } = timeline;
  const wanted = String(iteration);
  for (let at = 0; at < row.count; at += 1) {
    if (steps[row.step[at]][0] === index && keys[row.iteration[at]] === wanted) return at;
  }
  return -1;
}

/** Return whether a finding concerns a span, or one tensor there. */
function isWrong(opened, span, name) {
  const key = `${span.index}|${span.iteration}|${span.rank}`;
  return opened.wrong.has(name === undefined ? key : `${key}|${name}`);
}

function duration(micros) {
  if (micros < 1000) return `${micros} µs`;
  if (micros < 1e6) return `${(micros / 1000).toFixed(micros < 1e4 ? 1 : 0)} ms`;
  return `${(micros / 1e6).toFixed(2)} s`;
}
