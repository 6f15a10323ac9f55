// What every rank holds before and after a step, and where prediction and observation part.

const MOST_ROWS = 256;

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
    const timeline = opened.timelines[witness];
    if (!timeline || !at) {
      this.root.replaceChildren();
      return;
    }
    const key = `${opened.number}|${witness}|${at.lane}|${at.position}`;
    if (this.key === key) return;
    this.key = key;
    const span = spanAt(timeline, at.lane, at.position);
    const other = opened.timelines[witness === "observed" ? "predicted" : "observed"];
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

  table(opened, timeline, other, span) {
    const taken = [];
    const apart = [];
    timeline.lanes.forEach((lane, at) => {
      const position = positionOf(timeline, at, span.index, span.iteration);
      if (position >= 0) taken.push({ lane: at, position });
      else apart.push(lane.rank);
    });
    const shown = taken.slice(0, MOST_ROWS);
    if (!shown.some((each) => each.lane === span.lane)) shown.push({ lane: span.lane, position: span.position });
    const rows = shown.map((each) => this.facts(opened, timeline, other, each));
    const names = [...new Set(rows.flatMap((row) => [...row.before.keys(), ...row.after.keys()]))];
    const written = new Set(rows.flatMap((row) => [...row.after.keys()]));
    names.sort((a, b) => written.has(b) - written.has(a));
    const table = make("table");
    const head = make("tr");
    for (const name of ["rank", "", ...names]) head.append(make("th", "", name));
    const top = make("thead");
    top.append(head);
    const bottom = make("tbody");
    for (const row of rows) bottom.append(this.row(row, names, row.span.lane === span.lane));
    table.append(top, bottom);
    const box = make("div", "wide");
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Tensors before and after ${span.label}`);
    box.append(table);
    const left = [];
    if (taken.length > shown.length) left.push(`and ${taken.length - shown.length} more ranks`);
    if (apart.length) left.push(`${ranksText(apart)} ${apart.length > 1 ? "do" : "does"} not come to this step`);
    for (const text of left) box.append(make("p", "facts", text));
    return box;
  }

  facts(opened, timeline, other, at) {
    const span = spanAt(timeline, at.lane, at.position);
    const before = heldBefore(timeline, at.lane, at.position);
    const after = new Map(pairs(timeline, timeline.lanes[at.lane].values[at.position] || []));
    let others = null;
    const lane = other?.laneOf.get(span.rank);
    if (lane !== undefined) {
      const position = positionOf(other, lane, span.index, span.iteration);
      if (position >= 0) others = new Map(pairs(other, other.lanes[lane].values[position] || []));
    }
    return { span, before, after, others, otherWitness: other?.witness, opened };
  }

  row(facts, names, chosen) {
    const { span } = facts;
    const row = make("tr", chosen ? "chosen" : "");
    row.dataset.lane = span.lane;
    row.dataset.position = span.position;
    row.append(make("th", "", String(span.rank)), this.state(span));
    for (const name of names) row.append(this.cell(facts, name));
    return row;
  }

  state(span) {
    const cell = make("td", `state ${span.state}`);
    if (span.state === "b") cell.textContent = "stuck";
    else if (span.state !== "d") cell.textContent = STATES[span.state];
    else if (span.took > 0) cell.textContent = duration(span.took);
    if (span.raised) cell.append(make("div", "raised", span.raised));
    return cell;
  }

  cell({ span, before, after, others, otherWitness, opened }, name) {
    const cell = make("td", isWrong(opened, span, name) ? "value differs" : "value");
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
