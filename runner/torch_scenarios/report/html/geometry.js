// Where everything is: lanes lie below each other, logical time goes to the right. Positions are
// those of the whole diagram; what is visible begins at (left, top) of the scrolled box.

const HEAD = 12; // above the first lane
const LABELS = 74; // the ranks' names, at the left
const [NARROW, WIDE] = [1.5, 260];
const [LOW, HIGH] = [7, 60];

class Geometry {
  constructor(timeline) {
    this.timeline = timeline;
    this.lanes = timeline.lanes.length;
    this.arcs = timeline.edges.length ? 116 : 0; // the wait-for graph, at the right
    this.index();
  }

  /** Choose sizes in which a small program fills the width and a big one can be read. */
  settle(width, height) {
    const room = width - LABELS - this.right;
    this.column = Math.min(176, room / this.timeline.columns);
    if (this.column < 92) this.column = 118;
    this.lane = this.lanes <= 6 ? 50 : this.lanes <= 12 ? 42 : 26;
    this.fitted(width, height);
  }

  /** Choose sizes in which all of it is visible. */
  fit(width, height) {
    this.column = clamp((width - LABELS - this.right) / this.timeline.columns, NARROW, 176);
    this.lane = clamp((height - HEAD - 10) / this.lanes, LOW, 50);
  }

  fitted(width, height) {
    this.viewWidth = width;
    this.viewHeight = height;
  }

  zoom(factor) {
    this.column = clamp(this.column * factor, NARROW, WIDE);
    this.lane = clamp(this.lane * Math.sqrt(factor), LOW, HIGH);
  }

  get right() { return 46 + this.arcs; }
  get end() { return LABELS + this.timeline.columns * this.column; }
  get width() { return this.end + this.right; }
  get height() { return HEAD + this.lanes * this.lane + 10; }
  x(column) { return LABELS + column * this.column; }
  y(lane) { return HEAD + lane * this.lane; }
  middle(lane) { return HEAD + (lane + 0.5) * this.lane; }
  get gap() { return clamp(this.column * 0.035, 0.2, 4); }
  get pad() { return clamp(this.lane * 0.11, 0.5, 5); }

  /** Return the box of a span: left, top, width, height; one that is stuck reaches to the end. */
  box(lane, position) {
    const row = this.timeline.lanes[lane];
    const left = this.x(row.column[position]) + this.gap;
    const stuck = row.died === null && STUCK.includes(row.state[position]);
    const right = stuck ? this.end + 4 : this.x(row.column[position] + 1) - this.gap;
    return { x: left, y: this.y(lane) + this.pad, w: Math.max(0.8, right - left), h: this.lane - 2 * this.pad };
  }

  /** Return where the bar of a collective is: each in a column has a place of its own. */
  bar(meeting, left) {
    return left + Math.min(4 + meeting.slot * 6, this.column / 2);
  }

  /** Return the position of the first span of a lane at or after a column. */
  first(lane, column) {
    return firstAt(this.timeline.lanes[lane], column);
  }

  /** Return the span at a point of the diagram, or null: also in the time that it waits. */
  at(x, y) {
    const lane = Math.floor((y - HEAD) / this.lane);
    if (lane < 0 || lane >= this.lanes || x < LABELS) return null;
    const row = this.timeline.lanes[lane];
    const position = this.first(lane, Math.floor((x - LABELS) / this.column));
    if (position < row.count) return { lane, position };
    const last = row.count - 1;
    return last >= 0 && row.died === null && STUCK.includes(row.state[last]) && x < this.end + 8 ? { lane, position: last } : null;
  }

  // ------------------------------------------------------------------ meetings

  /** Give every collective of a column a place of its own, and find meetings by column. */
  index() {
    this.buckets = [];
    const slots = new Map();
    this.slots = this.timeline.lanes.map((lane) => new Uint8Array(lane.count));
    this.timeline.meetings.forEach((meeting, number) => {
      const [from, to] = this.extent(meeting);
      meeting.column = from;
      meeting.slot = 0;
      if (meeting.kind !== "message" && meeting.bottom > meeting.top) {
        const taken = slots.get(from) || [];
        const crosses = (other) => other.top <= meeting.bottom && meeting.top <= other.bottom;
        while (taken.some((other) => other.slot === meeting.slot && crosses(other))) meeting.slot += 1;
        slots.set(from, [...taken, meeting]);
        const { spans, slot } = meeting;
        for (let at = 0; slot && at < spans.length; at += 2) this.slots[spans[at]][spans[at + 1]] = slot;
      }
      for (let at = from >> 3; at <= to >> 3; at += 1) (this.buckets[at] ||= []).push(number);
    });
    this.stamps = new Uint32Array(this.timeline.meetings.length);
    this.stamp = 0;
  }

  /** Return the first and the last column of a meeting; note its first and last lane. */
  extent(meeting) {
    const { lanes } = this.timeline;
    let [from, to, top, bottom] = [Infinity, 0, Infinity, 0];
    for (const spans of new Set([meeting.spans, meeting.completed])) {
      for (let at = 0; at < spans.length; at += 2) {
        const column = lanes[spans[at]].column[spans[at + 1]];
        from = Math.min(from, column);
        to = Math.max(to, column);
        top = Math.min(top, spans[at]);
        bottom = Math.max(bottom, spans[at]);
      }
    }
    Object.assign(meeting, { top, bottom });
    return [from, to];
  }

  /** Return the spans, lane and position in turn, that a span meets with. */
  partners({ lane, position }) {
    const column = this.timeline.lanes[lane].column[position];
    const found = [];
    this.meetings(column, column, ({ spans, completed }) => {
      for (const ends of new Set([spans, completed])) {
        for (let at = 0; at < ends.length; at += 2) {
          if (ends[at] === lane && ends[at + 1] === position) return void found.push(...spans, ...completed);
        }
      }
    });
    return found;
  }

  /** Call `tell` once for each meeting that may be visible between two columns. */
  meetings(from, to, tell) {
    this.stamp += 1;
    for (let at = from >> 3; at <= to >> 3; at += 1) {
      for (const number of this.buckets[at] || []) {
        if (this.stamps[number] === this.stamp) continue;
        this.stamps[number] = this.stamp;
        tell(this.timeline.meetings[number]);
      }
    }
  }
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** Return the position of a lane's first span at or after a column; their number where none is. */
function firstAt({ column: columns }, column) {
  let [low, high] = [0, columns.length];
  while (low < high) {
    const half = (low + high) >> 1;
    if (columns[half] < column) low = half + 1;
    else high = half;
  }
  return low;
}
