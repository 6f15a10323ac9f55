// What every rank holds before and after a step, and where prediction and observation part.

const MOST_ROWS = 256;
const MOST_OF_A_LANE = 16; // rows of ranks that do the same, and hold something else
const MOST_RANKS = 4096; // of which it is looked up what they hold

class ValuesView {
  constructor(root, wishes) {
    this.root = root;
    this.wishes = wishes; // { pin(at) }
    root.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-lane]");
      if (row) wishes.pin({ lane: Number(row.dataset.lane), position: Number(row.dataset.position) });
    });
  }

  show(opened, witness, at) {
    const timeline = opened.timelines.of(witness);
    if (!timeline || !at) {
      this.root.replaceChildren();
      return;
    }
    const key = `${opened.number}|${witness}|${timeline.lanes.length}|${at.lane}|${at.position}`;
    if (this.key === key) return;
    this.key = key;
    const span = spanAt(timeline, at.lane, at.position);
    const other = opened.timelines.whole(witness === "observed" ? "predicted" : "observed");
    this.root.replaceChildren(this.heading(opened, timeline, span), this.table(opened, timeline, other, span));
  }

  heading(opened, timeline, span) {
    const heading = make("header");
    heading.append(make("h3", "", span.label));
    const facts = [];
    if (span.place) facts.push(span.place);
    if (span.iteration.length) facts.push(`iteration ${span.iteration.join(", ")}`);
    if (span.group && span.kind !== "local") facts.push(`group ${span.group}`);
    heading.append(make("span", "facts", facts.join("  ·  ")));
    return heading;
  }

  /** Every rank: in this step, or in what it does meanwhile. */
  table(opened, timeline, other, span) {
    const all = timeline.lanes.map((lane, at) => at);
    const asked = [span.lane, ...all.filter((at) => at !== span.lane)];
    const whole = opened.timelines.whole(timeline.witness);
    const rows = [];
    let ranks = 0;
    for (const lane of asked) {
      const { rank, members } = timeline.lanes[lane];
      const held = (members || [rank]).slice(0, MOST_RANKS - ranks);
      if (!held.length || rows.length >= MOST_ROWS) break;
      ranks += held.length;
      const facts = held.map((each) => this.facts(opened, whole, other, whole.laneOf.get(each), span));
      rows.push(...mergeEqual(facts.map((each) => ({ ...each, lane }))).slice(0, MOST_OF_A_LANE));
    }
    rows.splice(MOST_ROWS);
    rows.sort((a, b) => a.ranks[0] - b.ranks[0]);
    const names = [...new Set(rows.flatMap((row) => [...row.before.keys(), ...row.after.keys()]))];
    const written = new Set(rows.flatMap((row) => [...row.after.keys()]));
    names.sort((a, b) => written.has(b) - written.has(a));
    const table = make("table");
    const head = make("tr");
    for (const name of ["rank", "state", ...names]) head.append(make("th", "", name));
    const top = make("thead");
    top.append(head);
    const bottom = make("tbody");
    bottom.append(...rows.map((row) => this.row(row, names, span)));
    table.append(top, bottom);
    const box = make("div", "wide");
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Tensors before and after ${span.label}`);
    box.append(table);
    const left = whole.lanes.length - rows.reduce((count, row) => count + row.ranks.length, 0);
    if (left) box.append(make("p", "facts", `and ${left} more ranks`));
    return box;
  }

  facts(opened, timeline, other, lane, asked) {
    const row = timeline.lanes[lane];
    const ranks = [row.rank];
    let position = positionOf(timeline, lane, asked.index, asked.iteration);
    const meanwhile = position < 0;
    if (meanwhile) position = firstAt(row, asked.column);
    const exists = position < row.count && (!meanwhile || row.column[position] === asked.column);
    const before = heldBefore(timeline, lane, position);
    if (!exists) return { ranks, before, after: new Map(), meanwhile, opened };
    const span = spanAt(timeline, lane, position);
    const after = new Map(pairs(timeline, row.values[position] || []));
    const theirs = other?.laneOf.get(row.rank);
    const at = theirs === undefined ? -1 : positionOf(other, theirs, span.index, span.iteration);
    const others = at < 0 ? null : new Map(pairs(other, other.lanes[theirs].values[at] || []));
    return { ranks, died: row.died, span, before, after, others, otherWitness: other?.witness, meanwhile, opened };
  }

  row(facts, names, asked) {
    const { lane, ranks, span, meanwhile } = facts;
    const row = make("tr", meanwhile ? "meanwhile" : "");
    if (lane === asked.lane) row.classList.add("chosen");
    if (span) {
      row.dataset.lane = lane;
      row.dataset.position = span.position;
    }
    row.append(make("th", "", laneName({ rank: ranks[0], members: ranks })), this.state(facts, asked));
    for (const tensor of names) row.append(this.cell(facts, tensor));
    return row;
  }

  /** What the rank does, if that is another step, and how it went. */
  state({ span, died, ranks }, asked) {
    const cell = make("td", `state ${span?.state || ""}`);
    if (!span) return cell;
    const words = [];
    if (span.label !== asked.label) words.push(span.label);
    if (died && span.state === "u") words.push(`died: ${died}`);
    else if (span.state === "b") words.push("stuck");
    else if (span.state !== "d") words.push(STATES[span.state]);
    else if (span.took > 0 && ranks.length === 1) words.push(duration(span.took));
    cell.textContent = words.join(" · ");
    if (span.raised) cell.append(make("div", "raised", span.raised));
    return cell;
  }

  cell({ span, before, after, others, otherWitness, opened }, name) {
    const cell = make("td", span && isWrong(opened, span, name) ? "value differs" : "value");
    const [old, now] = [before.get(name), after.get(name)];
    if (now === undefined) {
      if (old !== undefined) cell.append(make("span", "same", old));
      return cell;
    }
    if (old === undefined || old === now) cell.append(make("span", old === now ? "same" : "now", now));
    else {
      const arrow = make("span", "to", "→");
      arrow.setAttribute("aria-label", "becomes");
      cell.append(make("span", "old", old), arrow, make("span", "now", now));
    }
    const elsewhere = others?.get(name);
    if (elsewhere !== undefined && elsewhere !== now) {
      cell.append(make("div", "other", `${otherWitness}: ${elsewhere}`));
    }
    return cell;
  }
}

/** Return one row for all ranks of a lane that hold the same, before and after. */
function mergeEqual(rows) {
  const found = new Map();
  for (const row of rows) {
    const held = [row.before, row.after, row.others || []].map((each) => JSON.stringify([...each]));
    const key = `${held.join("|")}|${row.span?.raised}`;
    const before = found.get(key);
    if (before) before.ranks.push(...row.ranks);
    else found.set(key, row);
  }
  return [...found.values()];
}
