// Draws the visible part of a diagram. Thousands of spans a frame: what has one colour is drawn as
// one path, and text only where there is room to read it.

const READABLE = 40; // a column this wide holds a word
const TWO_LINES = 36; // a lane this high holds what was written, too

class Painter {
  constructor(canvas) {
    this.seen = canvas.getContext("2d");
    this.base = make("canvas");
    this.words = new Map();
  }

  /** Paint one frame. `view` is what is visible, `lit` what is pointed at. */
  paint(geometry, looks, palette, view, lit) {
    Object.assign(this, { geometry, looks, palette, view, lit, timeline: geometry.timeline });
    this.bounds();
    const drawn = [looks, palette, ...Object.values(view), geometry.column, geometry.lane];
    if (!this.drawn || drawn.some((each, at) => each !== this.drawn[at])) this.ground();
    this.drawn = drawn;
    this.context = this.seen;
    this.seen.setTransform(1, 0, 0, 1, 0, 0);
    this.seen.clearRect(0, 0, this.base.width, this.base.height);
    this.seen.drawImage(this.base, 0, 0);
    this.place();
    this.marks();
    this.names();
  }

  /** Paint everything that stays as it is while a pointer moves. */
  ground() {
    const { width, height } = this.seen.canvas;
    Object.assign(this.base, { width, height }); // which clears it, too
    this.context = this.base.getContext("2d");
    if (this.column !== this.geometry.column) this.words.clear();
    this.column = this.geometry.column;
    this.place();
    this.lines();
    this.joins();
    if (this.column < READABLE) this.blocks();
    else this.spans();
    this.absent();
    this.messages();
    this.ends();
    this.graph();
  }

  place() {
    const { left, top, ratio } = this.view;
    this.context.setTransform(ratio, 0, 0, ratio, -left * ratio, -top * ratio);
    this.font = "";
  }

  /** Note which columns and which lanes are visible. */
  bounds() {
    const { geometry, timeline, view } = this;
    this.columns = [
      clamp(Math.floor((view.left - LABELS) / geometry.column) - 1, 0, timeline.columns),
      clamp(Math.ceil((view.left + view.width - LABELS) / geometry.column) + 1, 0, timeline.columns),
    ];
    this.rows = [
      clamp(Math.floor((view.top - HEAD) / geometry.lane), 0, geometry.lanes),
      clamp(Math.ceil((view.top + view.height - HEAD) / geometry.lane), 0, geometry.lanes),
    ];
  }

  /** The lanes themselves: a thin line each. */
  lines() {
    const { context, geometry, palette } = this;
    context.strokeStyle = palette.rule;
    context.lineWidth = 1;
    context.beginPath();
    for (let lane = this.rows[0]; lane < this.rows[1]; lane += 1) {
      const y = Math.round(geometry.middle(lane)) + 0.5;
      context.moveTo(LABELS, y);
      context.lineTo(geometry.end + 20, y);
    }
    context.stroke();
  }

  /** Collectives: a bar through all who take part; dashed where one is missing. */
  joins() {
    const { context, geometry, palette, timeline } = this;
    const [from, to] = this.rows;
    const inner = 2 * geometry.pad;
    context.lineWidth = clamp(geometry.column / 30, 0.6, 3);
    geometry.meetings(this.columns[0], this.columns[1], (meeting) => {
      if (meeting.kind === "message" || meeting.bottom < from || meeting.top > to) return;
      const { spans } = meeting;
      const [, , kind, , group] = timeline.steps[timeline.lanes[spans[0]].step[spans[1]]];
      const left = geometry.x(meeting.column) + geometry.gap;
      const x = geometry.bar(meeting, left);
      context.strokeStyle = context.fillStyle = meeting.complete ? palette.hue(kind, group || "world") : palette.bad;
      if (meeting.complete && geometry.column > 10) {
        context.globalAlpha = 0.13;
        for (let at = 2; at < spans.length; at += 2) {
          if (spans[at] !== spans[at - 2] + 1 || spans[at] < from || spans[at] > to) continue;
          context.fillRect(left, geometry.y(spans[at]) - geometry.pad, geometry.column - 2 * geometry.gap, inner);
        }
        context.globalAlpha = 1;
      }
      if (!meeting.complete) context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(x, geometry.y(meeting.top) + geometry.pad);
      context.lineTo(x, geometry.y(meeting.bottom + 1) - geometry.pad);
      context.stroke();
      context.setLineDash([]);
    });
  }

  /** Where a collective's bar meets a span that takes part in it. */
  accents() {
    const { context, geometry, palette, timeline } = this;
    const wide = clamp(geometry.column / 30, 0.6, 3);
    geometry.meetings(this.columns[0], this.columns[1], (meeting) => {
      if (meeting.kind === "message" || meeting.top === meeting.bottom) return;
      const { spans } = meeting;
      const [, , kind, , group] = timeline.steps[timeline.lanes[spans[0]].step[spans[1]]];
      context.fillStyle = meeting.complete ? palette.hue(kind, group || "world") : palette.bad;
      for (let at = 0; at < spans.length; at += 2) {
        if (spans[at] < this.rows[0] || spans[at] > this.rows[1]) continue;
        const left = geometry.x(timeline.lanes[spans[at]].column[spans[at + 1]]) + geometry.gap;
        context.fillRect(geometry.bar(meeting, left) - wide / 2, geometry.y(spans[at]) + geometry.pad, wide, geometry.lane - 2 * geometry.pad);
      }
    });
  }

  // ------------------------------------------------------------------ spans

  /** Every visible span, gathered by what it looks like, then drawn look by look. */
  spans() {
    const { geometry, looks, timeline } = this;
    const boxes = looks.table.map(() => []);
    const shown = [];
    const waits = [];
    for (let lane = this.rows[0]; lane < this.rows[1]; lane += 1) {
      const row = timeline.lanes[lane];
      for (let at = this.start(lane); at < row.count; at += 1) {
        const from = at ? row.column[at - 1] + 1 : 0;
        if (from > this.columns[1]) break;
        const look = looks.of(lane, at);
        const box = geometry.box(lane, at);
        boxes[looks.lanes[lane][at]].push(box);
        if (from < row.column[at] && at) waits.push([from, lane, box, look]);
        shown.push([lane, at, box, look]);
      }
    }
    this.waits(waits);
    boxes.forEach((found, number) => found.length && this.boxes(looks.table[number], found));
    this.accents();
    for (const each of shown) this.text(...each);
  }

  /** Return the first span of a lane that may be visible: one that is stuck reaches far. */
  start(lane) {
    const row = this.timeline.lanes[lane];
    const at = this.geometry.first(lane, this.columns[0]);
    return at > 0 && STUCK.includes(row.state[at - 1]) ? at - 1 : at;
  }

  /** Spans too small for words: plain blocks of color, tens of thousands of them. */
  blocks() {
    const { context, geometry, looks, timeline } = this;
    const starts = timeline.lanes.map((_, lane) => this.start(lane));
    const wide = Math.max(1, Math.round(this.column - 2 * geometry.gap)); // whole pixels are fast
    const high = Math.max(1, Math.round(geometry.lane - 2 * geometry.pad));
    looks.table.forEach((look, number) => {
      const stuck = STUCK.includes(look.state) && !look.died;
      context.globalAlpha = look.quiet ? 0.4 : 0.75;
      context.fillStyle = look.color;
      for (let lane = this.rows[0]; lane < this.rows[1]; lane += 1) {
        const numbers = looks.lanes[lane];
        const { column } = timeline.lanes[lane];
        const top = Math.round(geometry.y(lane) + geometry.pad);
        for (let at = starts[lane]; at < numbers.length && column[at] <= this.columns[1]; at += 1) {
          if (numbers[at] !== number) continue;
          const left = Math.round(geometry.x(column[at]) + geometry.gap);
          context.fillRect(left, top, stuck ? geometry.end + 4 - left : wide, high);
        }
      }
    });
    context.globalAlpha = 1;
    if (this.column > 12) this.accents();
  }

  boxes(look, boxes) {
    const { context, palette } = this;
    const round = clamp(this.column / 20, 0, 5);
    const path = new Path2D();
    for (const box of boxes) path.roundRect(box.x, box.y, box.w, box.h, round);
    context.fillStyle = palette.bg;
    context.fill(path);
    context.globalAlpha = look.quiet ? 0.1 : 0.17;
    context.fillStyle = look.color;
    context.fill(path);
    context.globalAlpha = look.quiet ? 0.45 : 0.75;
    context.strokeStyle = look.color;
    context.lineWidth = look.bad ? 1.8 : 1;
    if (look.state === "p" || look.kind === "wait") context.setLineDash([4, 3]);
    context.stroke(path);
    context.setLineDash([]);
    context.globalAlpha = 1;
    if ("bp".includes(look.state)) this.hatch(look, path, boxes);
  }

  /** What never returned is hatched behind its words. */
  hatch(look, path, boxes) {
    const { context, view } = this;
    context.save();
    context.clip(path);
    context.globalAlpha = 0.22;
    context.strokeStyle = look.color;
    context.lineWidth = 2;
    context.beginPath();
    for (const box of boxes) {
      const from = Math.max(box.x, view.left) - box.h;
      const to = Math.min(box.x + box.w, view.left + view.width);
      for (let x = from - ((from - box.x) % 9); x < to; x += 9) {
        context.moveTo(x, box.y + box.h);
        context.lineTo(x + box.h, box.y);
      }
    }
    context.stroke();
    context.restore();
  }

  /** The time in which a rank stands in a call before the others come: a thin tail. */
  waits(waits) {
    const { context, geometry } = this;
    for (const [from, lane, box, look] of waits) {
      const left = geometry.x(from) + geometry.gap;
      const high = Math.max(1.5, Math.min(6, box.h / 4));
      context.globalAlpha = 0.28;
      context.fillStyle = look.color;
      context.fillRect(left, geometry.middle(lane) - high / 2, box.x - left, high);
    }
    context.globalAlpha = 1;
  }

  text(lane, at, box, look) {
    const { context, palette, timeline, view, geometry } = this;
    const row = timeline.lanes[lane];
    const label = timeline.steps[row.step[at]][1];
    const visible = Math.max(box.x, view.left + LABELS);
    const slots = look.kind === "collective" || look.kind === "creation" ? 5 + 6 * geometry.slots[lane][at] : 0;
    const inset = clamp(this.column / 14, 3, 8) + slots;
    const room = Math.min(box.x + box.w, view.left + view.width) - visible - inset - 3;
    if (room < 18) return;
    const second = geometry.lane >= TWO_LINES ? this.second(row, at, look) : "";
    const middle = geometry.middle(lane);
        context.textBaseline = "middle";
    context.textAlign = "left";
    const badge = look.wrong && look.state !== "b" ? "≠ " : "";
    const size = clamp(geometry.lane * 0.46, 8, 12.5);
    this.word(badge + label, `600 ${size}px ${palette.ui}`, look.bad ? palette.bad : palette.fg, visible + inset, middle - (second ? 7.5 : 0), room);
    if (second) {
      const told = look.state !== "d";
      this.word(second, `11px ${told ? palette.ui : palette.mono}`, told ? look.color : palette.dim, visible + inset, middle + 8.5, room);
    }
  }

  /** The second line of a span: why it stands, what it raised, or what it wrote. */
  second(row, at, look) {
    if (look.state === "b" || look.state === "p") {
      const edge = this.timeline.edges.find((each) => each.waiter === row.rank && each.cycle)
        || this.timeline.edges.find((each) => each.waiter === row.rank);
      return edge ? `waits for rank ${edge.peer} ${edge.because}` : STATES[look.state];
    }
    if (row.raised[at] !== null) return `raised ${row.raised[at].split(": ", 1)[0]}`;
    if (!row.values[at]) return "";
    const [name, text] = pairs(this.timeline, row.values[at])[0];
    return `${name} = ${text}`;
  }

  word(text, font, color, x, y, room) {
    const { context } = this;
    if (this.font !== font) context.font = this.font = font;
    context.fillStyle = color;
    const key = `${font}|${Math.round(room)}|${text}`;
    let shown = this.words.get(key);
    if (shown === undefined) {
      shown = shortened(context, text, room);
      if (this.words.size > 20000) this.words.clear();
      this.words.set(key, shown);
    }
    if (shown) context.fillText(shown, x, y);
  }

  // ------------------------------------------------------------------ messages

  messages() {
    const { context, geometry, palette } = this;
    if (this.column < 8) return;
    const thin = clamp(this.column / 60, 0.5, 1.6);
    const fine = new Path2D();
    geometry.meetings(this.columns[0], this.columns[1], (meeting) => {
      if (meeting.kind !== "message" || meeting.bottom < this.rows[0] - 1 || meeting.top > this.rows[1]) return;
      if (this.column < 24) return void (meeting.spans.length > 2 && this.fine(fine, meeting));
      context.strokeStyle = context.fillStyle = meeting.complete ? palette.message : palette.bad;
      context.lineWidth = thin;
      if (meeting.spans.length < 4) this.lost(meeting);
      else this.arrow(...this.way(meeting), meeting.complete);
    });
    context.strokeStyle = palette.message;
    context.lineWidth = thin;
    context.globalAlpha = 0.6;
    context.stroke(fine);
    context.globalAlpha = 1;
  }

  /** A message where there is no room for an arrow: one line among others of the same path. */
  fine(path, meeting) {
    const [start, end] = this.way(meeting);
    path.moveTo(...start);
    path.lineTo(...end);
  }

  /** Return where a message leaves its sender's box, and where it comes to its receiver's. */
  way({ spans, completed }) {
    const { geometry } = this;
    const { lanes } = this.timeline;
    const [a, b] = [geometry.box(spans[0], spans[1]), geometry.box(completed[2], completed[3])];
    const [from, to] = [lanes[spans[0]].column[spans[1]], lanes[completed[2]].column[completed[3]]];
    const [down, same] = [completed[2] > spans[0], completed[2] === spans[0]];
    if (from >= to) {
      const part = geometry.column * (down ? 0.72 : 0.84);
      return [[geometry.x(from) + part, down ? a.y + a.h : a.y], [geometry.x(to) + part, down ? b.y : b.y + b.h]];
    }
    const inset = same ? 0 : Math.min(18, geometry.column * 0.14);
    const start = [geometry.x(from + 1) - geometry.gap - inset, same ? a.y + a.h / 2 : down ? a.y + a.h : a.y];
    return [start, [b.x + inset, same ? b.y + b.h / 2 : down ? b.y : b.y + b.h]];
  }

  arrow(start, end, complete) {
    const { context, palette } = this;
    const head = clamp(this.column / 14, 1.5, 7);
    const angle = Math.atan2(end[1] - start[1], end[0] - start[0]);
    const path = new Path2D();
    path.moveTo(...start);
    path.lineTo(end[0] - head * 0.8 * Math.cos(angle), end[1] - head * 0.8 * Math.sin(angle));
    if (this.column > 60) {
      const [color, width] = [context.strokeStyle, context.lineWidth];
      context.strokeStyle = palette.bg;
      context.lineWidth = width + 2.5;
      context.stroke(path);
      context.strokeStyle = color;
      context.lineWidth = width;
    }
    if (!complete) context.setLineDash([4, 3]);
    context.stroke(path);
    context.setLineDash([]);
    if (head > 2) this.tip(end, angle, head);
  }

  tip(end, angle, head) {
    const { context } = this;
    context.beginPath();
    context.moveTo(...end);
    for (const side of [-0.42, 0.42]) {
      context.lineTo(end[0] - head * Math.cos(angle + side), end[1] - head * Math.sin(angle + side));
    }
    context.fill();
  }

  /** Who should have come to a collective and is nowhere at that time: an empty place. */
  absent() {
    const { context, geometry, palette, timeline } = this;
    if (this.column < 12) return;
    const size = clamp(geometry.lane * 0.4, 8, 12);
    geometry.meetings(this.columns[0], this.columns[1], ({ kind, missing, column }) => {
      if (kind === "message") return;
      for (const rank of missing) {
        const lane = timeline.laneOf.get(rank);
        if (lane === undefined || lane < this.rows[0] || lane >= this.rows[1]) continue;
        const row = timeline.lanes[lane];
        if (row.column[firstAt(row, column)] === column || row.died !== null) continue;
        const path = new Path2D();
        const left = geometry.x(column) + geometry.gap;
        const [top, wide, high] = [geometry.y(lane) + geometry.pad, geometry.column - 2 * geometry.gap, geometry.lane - 2 * geometry.pad];
        path.roundRect(left, top, wide, high, clamp(this.column / 20, 0, 5));
        context.fillStyle = palette.bg;
        context.fill(path);
        context.strokeStyle = palette.bad;
        context.lineWidth = 1.5;
        context.setLineDash([3, 4]);
        context.stroke(path);
        context.setLineDash([]);
        context.textBaseline = "middle";
        if (this.column >= READABLE) this.word("missing", `600 ${size}px ${palette.ui}`, palette.bad, left + 12, geometry.middle(lane), wide - 16);
      }
    });
  }

  /** A message that nobody receives, or that nobody sends; where a rank is stuck the graph tells. */
  lost(meeting) {
    const { context, geometry, timeline } = this;
    const [lane, position] = meeting.spans;
    if (STUCK.includes(timeline.lanes[lane].state[position])) return;
    const box = geometry.box(lane, position);
    const peer = timeline.laneOf.get(meeting.missing[0]);
    const down = peer === undefined || peer > lane;
    const x = geometry.x(meeting.column) + geometry.column * (down ? 0.72 : 0.84);
    const from = down ? box.y + box.h : box.y;
    const to = from + (down ? 1 : -1) * (geometry.pad * 2 + 5);
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x, from);
    context.lineTo(x, to);
    context.stroke();
    context.setLineDash([]);
    context.font = `700 11px ${this.palette.ui}`;
    context.textBaseline = "middle";
    context.fillText("✕", x + 4, to);
  }

  // ------------------------------------------------------------------ how it ended

  /** Ranks that died: how, after their last span. */
  ends() {
    const { context, geometry, palette, timeline } = this;
    if (geometry.lane < 12) return;
    context.textBaseline = "middle";
    for (let lane = this.rows[0]; lane < this.rows[1]; lane += 1) {
      const row = timeline.lanes[lane];
      if (row.ending !== "died") continue;
      const column = row.count ? row.column[row.count - 1] + 1 : 0;
      const x = geometry.x(column) + 6;
      const text = `† ${row.died || "died"}`;
      context.font = `600 12px ${palette.ui}`;
      const wide = context.measureText(text).width;
      context.fillStyle = palette.bg;
      context.fillRect(x - 4, geometry.middle(lane) - 9, wide + 8, 18);
      context.fillStyle = palette.bad;
      context.fillText(text, x, geometry.middle(lane));
    }
  }

  /** The wait-for graph, right of the lanes: who waits for whom, the cycle strong. */
  graph() {
    const { context, geometry, palette, timeline } = this;
    if (!timeline.edges.length) return;
    const many = timeline.edges.length > 24;
    const sorted = [...timeline.edges].sort((a, b) => a.cycle - b.cycle);
    for (const edge of sorted) {
      const [from, to] = [timeline.laneOf.get(edge.waiter), timeline.laneOf.get(edge.peer)];
      if (from === undefined || to === undefined) continue;
      context.strokeStyle = context.fillStyle = edge.cycle ? palette.bad : palette.dim;
      context.globalAlpha = edge.cycle ? 1 : many ? 0.35 : 0.7;
      context.lineWidth = clamp(geometry.lane / 14, 0.7, edge.cycle ? 2.2 : 1.2);
      this.arc(from, to, edge.cycle);
    }
    context.globalAlpha = 1;
  }

  arc(from, to, cycle) {
    const { context, geometry } = this;
    const down = to > from; // a way up goes around one down, so that a pair is two arcs
    const shift = Math.min(6, geometry.lane / 7);
    const dot = clamp(geometry.lane / 11, 1, cycle ? 4.5 : 3.5);
    const head = clamp(geometry.lane / 5, 2.5, cycle ? 8 : 6);
    const start = [geometry.end + 14, geometry.middle(from) + shift * 0.5];
    const end = [geometry.end + 15 + dot, geometry.middle(to) - shift];
    const near = clamp(geometry.lane * 0.62, 10, 30);
    const bulge = Math.min(near * (1 + (Math.abs(to - from) - 1) * 0.55 + (down ? 0 : 0.5)), 96);
    context.beginPath();
    context.moveTo(...start);
    context.bezierCurveTo(start[0] + bulge, start[1] + shift, end[0] + bulge, end[1] - shift, end[0] + head * 0.8, end[1]);
    context.stroke();
    this.tip(end, Math.PI, head);
    context.beginPath();
    context.arc(start[0], geometry.middle(from), dot, 0, 7);
    context.fill();
  }

  // ------------------------------------------------------------------ what is pointed at

  marks() {
    const { context, palette, lit, timeline } = this;
    context.lineJoin = "round";
    if (lit.line !== null) {
      context.lineWidth = 2;
      context.strokeStyle = palette.focus;
      context.fillStyle = palette.focus;
      const path = new Path2D();
      for (let lane = this.rows[0]; lane < this.rows[1]; lane += 1) {
        const row = timeline.lanes[lane];
        const start = this.geometry.first(lane, this.columns[0]);
        for (let at = Math.max(0, start - 1); at < row.count; at += 1) {
          if (row.column[at] > this.columns[1]) break;
          if (timeline.steps[row.step[at]][5] !== lit.line) continue;
          const box = this.geometry.box(lane, at);
          path.roundRect(box.x - 1, box.y - 1, box.w + 2, box.h + 2, clamp(this.column / 20, 0, 6));
        }
      }
      context.globalAlpha = 0.12;
      context.fill(path);
      context.globalAlpha = 0.75;
      context.stroke(path);
      context.globalAlpha = 1;
    }
    if (lit.hovered || lit.pinned) this.partners(lit.hovered || lit.pinned);
    if (lit.pinned) this.ring(lit.pinned, 3);
    if (lit.hovered) this.ring(lit.hovered, 2);
  }

  /** Those who take part in the same: a thin line around each. */
  partners(at) {
    const { context, geometry, palette } = this;
    const found = geometry.partners(at);
    if (!found.length) return;
    const path = new Path2D();
    for (let end = 0; end < found.length; end += 2) {
      if (found[end] < this.rows[0] || found[end] >= this.rows[1]) continue;
      const box = geometry.box(found[end], found[end + 1]);
      path.roundRect(box.x - 1, box.y - 1, box.w + 2, box.h + 2, clamp(this.column / 20, 0, 6));
    }
    context.strokeStyle = palette.focus;
    context.lineWidth = 1.5;
    context.setLineDash([2, 3]);
    context.stroke(path);
    context.setLineDash([]);
  }

  ring(at, width) {
    const { context, palette, geometry } = this;
    const box = geometry.box(at.lane, at.position);
    context.strokeStyle = palette.bg;
    context.lineWidth = width + 2.5;
    const path = new Path2D();
    path.roundRect(box.x - 1.5, box.y - 1.5, box.w + 3, box.h + 3, clamp(this.column / 18, 0, 6));
    context.stroke(path);
    context.strokeStyle = palette.focus;
    context.lineWidth = width;
    context.stroke(path);
  }

  /** The names of the ranks, which stay at the left. */
  names() {
    const { context, geometry, palette, timeline, view } = this;
    const left = view.left;
    context.fillStyle = palette.bg;
    context.fillRect(left, view.top, LABELS - 4, view.height);
    context.textBaseline = "middle";
    context.textAlign = "right";
    const size = clamp(geometry.lane * 0.6, 7, 12.5);
    const every = Math.ceil(9 / geometry.lane);
    for (let lane = this.rows[0]; lane < this.rows[1]; lane += 1) {
      if (lane % every) continue;
      const row = timeline.lanes[lane];
      const bad = row.ending === "blocked" || row.ending === "died" || row.ending === "raised";
      context.font = `${bad ? 700 : 500} ${size}px ${palette.ui}`;
      context.fillStyle = bad ? palette.bad : row.ending === "possibly_blocked" ? palette.maybe : palette.dim;
      const name = geometry.lane < 12 ? `${row.rank}` : `rank ${row.rank}`;
      const low = geometry.lane >= TWO_LINES && row.ending !== "finished" ? 7 : 0;
      context.fillText(name, left + LABELS - 14, geometry.middle(lane) - low);
      if (low) {
        context.font = `11px ${palette.ui}`;
        context.fillText(row.ending === "blocked" ? "stuck" : row.ending.replace("_", " "), left + LABELS - 14, geometry.middle(lane) + 8);
      }
    }
    context.textAlign = "left";
  }
}

function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let [low, high] = [0, Math.min(text.length, 200)];
  while (low < high) {
    const half = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, half)}…`).width <= room) low = half;
    else high = half - 1;
  }
  return low > 0 ? `${text.slice(0, low)}…` : "";
}
