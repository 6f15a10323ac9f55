// Draws the visible part of a diagram. Thousands of spans a frame: what has one colour is drawn as
// one path, and text only where there is room to read it.

const READABLE = 40; // a column this wide holds a word
const ELLIPSIS = 10; // the width of …
const TWO_LINES = 36; // a lane this high holds what was written, too

class Painter {
  constructor(canvas) {
    this.seen = canvas.getContext("2d");
    this.base = make("canvas");
    this.picture = make("canvas");
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
    paintMarks(this);
    paintNames(this);
  }

  /** Paint everything that stays as it is while a pointer moves. */
  ground() {
    const { width, height } = this.seen.canvas;
    Object.assign(this.base, { width, height }); // which clears it, too
    this.context = this.base.getContext("2d");
    this.column = this.geometry.column;
    this.place();
    this.lines();
    paintJoins(this);
    if (this.column < DISTANT) paintDistant(this);
    else if (this.column < READABLE) this.blocks();
    else this.spans();
    paintAbsent(this);
    paintMessages(this);
    paintEnds(this);
    paintGraph(this);
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
    paintAccents(this);
    for (const each of shown) this.text(...each);
  }

  /** Return the first span of a lane that may be visible: one that is stuck reaches far. */
  start(lane) {
    const row = this.timeline.lanes[lane];
    const at = this.geometry.first(lane, this.columns[0]);
    return at > 0 && STUCK.includes(row.state[at - 1]) ? at - 1 : at;
  }

  /** Spans too small for words: plain blocks of colour, thousands of them. */
  blocks() {
    const { context, geometry, looks, timeline } = this;
    const starts = timeline.lanes.map((_, lane) => this.start(lane));
    const wide = Math.round(this.column - 2 * geometry.gap); // whole pixels are fast
    const high = Math.max(1, Math.round(geometry.lane - 2 * geometry.pad));
    looks.paints.forEach(({ color, alpha, stuck }, paint) => {
      context.globalAlpha = alpha;
      context.fillStyle = color;
      for (let lane = this.rows[0]; lane < this.rows[1]; lane += 1) {
        const numbers = looks.lanes[lane];
        const { column } = timeline.lanes[lane];
        const top = Math.round(geometry.y(lane) + geometry.pad);
        for (let at = starts[lane]; at < numbers.length && column[at] <= this.columns[1]; at += 1) {
          if (looks.paintOf[numbers[at]] !== paint) continue;
          const left = Math.round(geometry.x(column[at]) + geometry.gap);
          context.fillRect(left, top, stuck ? geometry.end + 4 - left : wide, high);
        }
      }
    });
    context.globalAlpha = 1;
    if (this.column > 12) paintAccents(this);
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
    const size = Math.round(clamp(geometry.lane * 0.46, 8, 12.5) * 2) / 2; // few sizes, few measures
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

  /** Write a word, cut where there is no room for all of it; widths are measured once. */
  word(text, font, color, x, y, room) {
    const { context } = this;
    if (this.font !== font) context.font = this.font = font;
    context.fillStyle = color;
    const key = `${font}|${text}`;
    let wide = this.words.get(key);
    if (wide === undefined) {
      if (this.words.size > 50000) this.words.clear();
      wide = context.measureText(text).width;
      this.words.set(key, wide);
    }
    if (wide <= room) return context.fillText(text, x, y);
    const fits = Math.floor((text.length * (room - ELLIPSIS) * 0.97) / wide);
    if (fits > 0) context.fillText(`${text.slice(0, fits)}…`, x, y);
  }
}
