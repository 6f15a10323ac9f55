// Ways through a large diagram: a search, a slider over its columns, the rank that the others wait for.

const MOST_FOUND = 100000;

class Finder {
  constructor(page) {
    this.page = page;
    this.words = byId("find");
    this.slider = byId("step");
    this.words.addEventListener("input", () => this.search());
    this.words.addEventListener("keydown", (event) => this.typed(event));
    this.slider.addEventListener("input", () => this.slide());
    byId("culprit").addEventListener("click", () => this.blame());
  }

  /** Begin with a timeline that is shown anew. */
  begin(opened, timeline) {
    this.opened = opened;
    this.timeline = timeline;
    this.slider.max = timeline.columns - 1;
    byId("culprit").hidden = !timeline.edges.length && !opened.wrong.size;
    if (this.words.value) this.search(false);
    else byId("found").textContent = "";
  }

  /** Let the slider follow the step that is pinned. */
  follow(at) {
    if (!at || !this.timeline) return;
    const row = this.timeline.lanes[at.lane];
    const column = row.column[at.position];
    const label = this.timeline.steps[row.step[at.position]][1];
    this.slider.value = column;
    this.slider.setAttribute("aria-valuetext", `${column + 1} of ${this.timeline.columns}: ${label}`);
    byId("at").textContent = `${column + 1} of ${this.timeline.columns}`;
  }

  go(at) {
    if (!at) return;
    this.page.pin(at);
    this.page.diagram.reveal(at);
  }

  slide() {
    const column = Number(this.slider.value);
    const lane = this.page.pinned?.lane ?? 0;
    const { diagram } = this.page;
    const rows = this.timeline.lanes;
    const there = (each) => rows[each].column[diagram.geometry.first(each, column)] === column;
    const best = there(lane) ? lane : rows.findIndex((_, each) => there(each));
    this.go(best < 0 ? diagram.beside(lane, column, 1) : { lane: best, position: diagram.geometry.first(best, column) });
  }

  // ------------------------------------------------------------------ search

  search(move = true) {
    this.hits = findSpans(this.timeline, this.words.value);
    this.hit = 0;
    if (move && this.hits.length) this.go(this.hits[0]);
    this.count();
  }

  count() {
    const many = this.hits.length;
    const words = many ? `${this.hit + 1} of ${many}` : "not found";
    byId("found").textContent = this.words.value.trim() ? words : "";
  }

  typed(event) {
    if (event.key === "Escape") {
      this.words.value = "";
      byId("found").textContent = "";
      byId("canvas").focus();
    } else if (event.key === "Enter" && this.hits?.length) {
      event.preventDefault();
      this.hit = (this.hit + (event.shiftKey ? this.hits.length - 1 : 1)) % this.hits.length;
      this.go(this.hits[this.hit]);
      this.count();
    }
  }

  // ------------------------------------------------------------------ the culprit

  blame() {
    this.go(findCulprit(this.timeline) || this.page.first());
  }
}

/** Return the spans that a text names: of a rank its last, else each whose step has the words. */
function findSpans(timeline, text) {
  const words = text.trim().toLowerCase();
  const rank = /^(?:rank\s*)?(\d+)$/.exec(words);
  if (rank) {
    const lane = timeline.laneOf.get(Number(rank[1]));
    return lane !== undefined && timeline.lanes[lane].count ? [{ lane, position: timeline.lanes[lane].count - 1 }] : [];
  }
  if (!words) return [];
  const named = timeline.steps.map(([, label, , operation, group, , place]) => (
    [label, operation, group, place].some((each) => String(each ?? "").toLowerCase().includes(words))
  ));
  const found = [];
  timeline.lanes.forEach((row, lane) => {
    for (let position = 0; position < row.count && found.length < MOST_FOUND; position += 1) {
      const so = named[row.step[position]] || STATES[row.state[position]].includes(words)
        || row.raised[position]?.toLowerCase().includes(words);
      if (so) found.push({ lane, position, column: row.column[position] });
    }
  });
  return found.sort((a, b) => a.column - b.column || a.lane - b.lane);
}

/** Return the last call of the rank that most others wait for: one that waits for no rank, if there is one. */
function findCulprit(timeline) {
  const waiting = new Set(timeline.edges.map(({ waiter }) => timeline.laneOf.get(waiter)));
  const weights = new Map();
  for (const { peer, cycle } of timeline.edges) {
    const lane = timeline.laneOf.get(peer);
    if (lane === undefined || !timeline.lanes[lane].count) continue;
    const start = (waiting.has(lane) ? 0 : 1e9) + (cycle ? 1e6 : 0);
    weights.set(lane, (weights.get(lane) ?? start) + 1);
  }
  const [best] = [...weights].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  return best ? { lane: best[0], position: timeline.lanes[best[0]].count - 1 } : null;
}
