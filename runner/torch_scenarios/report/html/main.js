// Brings the parts together: which case, which witness, what is pointed at; keys, theme, print.

const MOST_KEYS = 12; // groups in the legend
const MANY = 16; // ranks, whose table is not made while a pointer moves
const REST = 60; // milliseconds until a pointer rests

class Page {
  constructor(run) {
    this.run = run;
    this.pinned = null;
    this.hovered = null;
    this.diagram = new Diagram({
      hover: (at, event) => this.hover(at, event),
      pin: (at) => this.pin(at),
    });
    this.source = new SourceView(byId("source"), {
      hover: (line) => this.diagram.light({ line }),
      choose: (line) => this.chooseLine(line),
    });
    this.values = new ValuesView(byId("held"), { pin: (at) => this.pin(at) });
    this.finder = new Finder(this);
    byId("fold").addEventListener("click", () => this.fold());
    this.cases = new CasesView(run, { open: (at) => this.open(at) });
    byId("summary").textContent = run.summary;
    if (run.against) byId("summary").after(...againstWords(run.against));
    byId("divergence").addEventListener("click", () => this.diverge());
    byId("environment").textContent = environmentText(run);
    this.witnesses();
    switchTheme(byId("theme"), () => {
      this.diagram.recolor();
      if (this.opened?.timelines.has("predicted")) this.legend(this.opened.timelines.of(this.witness));
    });
    explainKeys(byId("keys"), byId("help"));
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("resize", () => this.diagram.layout());
    window.addEventListener("beforeprint", () => this.print(true));
    window.addEventListener("afterprint", () => this.print(false));
    window.addEventListener("hashchange", () => this.fromHash());
    this.fromHash();
  }

  // ------------------------------------------------------------------ which case

  fromHash() {
    const wanted = decode(location.hash.slice(1));
    const at = this.run.cases.findIndex((each) => nameOf(each) === wanted);
    if (at >= 0 && at === this.cases.at) return;
    if (this.run.cases.length) this.open(Math.max(0, at));
  }

  open(at) {
    if (at === this.cases.at) return;
    this.cases.choose(at);
    byId("case").classList.remove("nothing");
    this.opened = openCase(this.run.cases[at]);
    remember(nameOf(this.run.cases[at]));
    const { timelines } = this.opened;
    this.witness = timelines.has("observed") ? "observed" : "predicted";
    showTitle(byId("title"), this.opened);
    showStory(byId("story"), this.opened, this.run);
    this.source.show(this.opened);
    byId("divergence").hidden = !this.opened.divergence;
    byId("divergence").title = this.opened.divergence ? `${this.opened.divergence.says} (f)` : "";
    byId("run").hidden = !timelines.has("predicted");
    this.pinned = this.hovered = null;
    byId("case").scrollTop = 0;
    if (timelines.has("predicted")) {
      this.beginFolded();
      this.draw(false);
      this.pin(this.first());
      if (this.pinned) this.diagram.reveal(this.pinned);
    } else this.markFirst();
  }

  /** Draw equal ranks of a large world as one lane, where that leaves fewer. */
  beginFolded() {
    const { timelines } = this.opened;
    const ranks = timelines.of(this.witness).lanes.length;
    if (ranks >= FOLDS) timelines.fold(this.opened, true);
    const fewer = timelines.of(this.witness).lanes.length;
    if (fewer === ranks) timelines.fold(this.opened, false);
    byId("fold").hidden = fewer === ranks;
    byId("fold").setAttribute("aria-pressed", String(fewer < ranks));
  }

  fold() {
    const { timelines } = this.opened;
    const on = !timelines.folded;
    this.change(() => timelines.fold(this.opened, on), false);
    byId("fold").setAttribute("aria-pressed", String(on));
  }

  /** Go to the first step in which the run is not as predicted. */
  diverge() {
    const where = this.opened?.divergence;
    if (!where) return;
    this.see(where.witness);
    const timeline = this.opened.timelines.of(where.witness);
    const lane = timeline.laneOf.get(where.rank);
    const position = lane === undefined ? -1 : positionOf(timeline, lane, where.index, where.iteration);
    if (position < 0) return;
    this.pin({ lane, position });
    this.diagram.reveal({ lane, position });
    byId("told").textContent = where.says;
  }

  /** Of a file that was not read: show the first line that is wrong. */
  markFirst() {
    const place = this.opened.places.find((each) => each.line && each.file === this.opened.file);
    if (place) this.source.light(place.line, true);
  }

  draw(keep) {
    const timeline = this.opened.timelines.of(this.witness);
    this.diagram.show(this.opened, timeline, keep);
    this.finder.begin(this.opened, timeline);
    this.mark();
    this.legend(timeline);
  }

  /** Return the span that a reader should see first: the first that is wrong, or stuck. */
  first() {
    const timeline = this.opened.timelines.of(this.witness);
    let found = null;
    timeline.lanes.forEach((lane, at) => {
      for (let position = 0; position < lane.count; position += 1) {
        const look = this.diagram.looks.of(at, position);
        const worth = look.wrong ? 4 : look.died ? 3 : look.state === "b" ? 2 : look.raised ? 1 : 0;
        if (!found || worth > found.worth) found = { lane: at, position, worth };
      }
    });
    return found && { lane: found.lane, position: found.position };
  }

  // ------------------------------------------------------------------ which witness

  witnesses() {
    const radios = ["predicted", "observed"].map((witness) => {
      const radio = make("button", "", witness);
      radio.type = "button";
      radio.dataset.witness = witness;
      radio.setAttribute("role", "radio");
      radio.addEventListener("click", () => this.see(witness));
      radio.addEventListener("keydown", (event) => {
        if (!event.key.startsWith("Arrow")) return;
        event.preventDefault();
        this.switch();
        byId("witness").querySelector("[aria-checked=true]").focus();
      });
      return radio;
    });
    byId("witness").append(...radios);
  }

  /** Show which witness is seen, and whether there is another. */
  mark() {
    for (const radio of byId("witness").children) {
      const { witness } = radio.dataset;
      radio.setAttribute("aria-checked", String(witness === this.witness));
      radio.tabIndex = witness === this.witness ? 0 : -1;
      radio.disabled = !this.opened.timelines.has(witness);
      radio.title = radio.disabled ? "nothing ran" : "";
    }
  }

  switch() {
    this.see(this.witness === "observed" ? "predicted" : "observed");
  }

  see(witness) {
    if (!this.opened?.timelines.has(witness) || witness === this.witness) return;
    this.change(() => { this.witness = witness; }, true);
  }

  /** Draw anew after a change, and keep the step that is pinned. */
  change(make, keep) {
    const before = this.pinned && spanAt(this.opened.timelines.of(this.witness), this.pinned.lane, this.pinned.position);
    make();
    this.draw(keep);
    const timeline = this.opened.timelines.of(this.witness);
    let next = null;
    if (before) {
      const lane = timeline.laneOf.get(before.rank);
      const position = lane === undefined ? -1 : positionOf(timeline, lane, before.index, before.iteration);
      next = position >= 0 ? { lane, position } : this.first();
    }
    this.pin(next);
    if (next) this.diagram.reveal(next);
  }

  /** Tell the outcome, and which color is which group. */
  legend(timeline) {
    const outcome = make("strong", timeline.outcome, timeline.outcome);
    const by = this.witness === "observed" ? ` on ${timeline.backend}` : "";
    byId("outcome").replaceChildren(outcome, by);
    const keys = [...this.diagram.palette.hues].map(([group, hue]) => {
      const key = make("span", "key");
      const dot = make("i");
      dot.style.background = hue;
      key.append(dot, group);
      return key;
    });
    byId("legend").replaceChildren(...(keys.length > 1 ? keys.slice(0, MOST_KEYS) : []));
    if (keys.length > MOST_KEYS) byId("legend").append(`and ${keys.length - MOST_KEYS} more groups`);
    const words = `Space-time diagram, ${this.witness}: ${timeline.laneOf.size} ranks, ${timeline.outcome}`;
    byId("canvas").setAttribute("aria-label", words);
  }

  // ------------------------------------------------------------------ what is pointed at

  pin(at) {
    this.pinned = at;
    this.diagram.light({ pinned: at });
    this.finder.follow(at);
    if (at) byId("told").textContent = wordsAbout(this.opened, this.opened.timelines.of(this.witness), at);
    this.soon();
  }

  hover(at, event) {
    this.hovered = at;
    this.diagram.light({ hovered: at });
    const tip = byId("tip");
    tip.hidden = !at;
    if (at) {
      tip.textContent = wordsAbout(this.opened, this.opened.timelines.of(this.witness), at);
      const { clientX: x, clientY: y } = event;
      tip.style.left = `${Math.min(x + 14, window.innerWidth - tip.offsetWidth - 12)}px`;
      tip.style.top = `${Math.min(y + 18, window.innerHeight - tip.offsetHeight - 12)}px`;
    }
    this.soon();
  }

  /** Show what belongs to the step at hand; of many ranks once the pointer, or the page, rests. */
  soon() {
    clearTimeout(this.resting);
    const timeline = this.opened?.timelines.of(this.witness);
    if (!timeline || timeline.lanes.length <= MANY) this.update();
    else this.resting = setTimeout(() => this.update(), REST);
  }

  /** Light the step's lines, and show what was held around it. */
  update() {
    if (!this.opened) return;
    const at = this.hovered || this.pinned;
    const timeline = this.opened.timelines.of(this.witness);
    this.values.show(this.opened, this.witness, at);
    if (at && timeline) this.source.light(spanAt(timeline, at.lane, at.position).line ?? null, true);
    else if (timeline) this.source.light(null);
  }

  chooseLine(line) {
    const timeline = this.opened.timelines.of(this.witness);
    for (let lane = 0; lane < timeline.lanes.length; lane += 1) {
      const row = timeline.lanes[lane];
      const position = row.step.findIndex((step) => timeline.steps[step][5] === line);
      if (position < 0) continue;
      this.pin({ lane, position });
      this.diagram.reveal({ lane, position });
      return;
    }
  }

  // ------------------------------------------------------------------ keys, theme, print

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (event.target.matches("input")) return;
    const acts = {
      "/": () => byId("filter").focus(),
      j: () => this.cases.move(1),
      k: () => this.cases.move(-1),
      o: () => this.switch(),
      f: () => this.diverge(),
      c: () => byId("culprit").click(),
      e: () => byId("fold").hidden || byId("fold").click(),
      s: () => byId("find").focus(),
      d: () => byId("canvas").focus(),
      t: () => byId("theme").click(),
      "?": () => byId("keys").click(),
      "+": () => this.opened?.timelines.has("predicted") && this.diagram.zoom(1.35),
      "=": () => this.opened?.timelines.has("predicted") && this.diagram.zoom(1.35),
      "-": () => this.opened?.timelines.has("predicted") && this.diagram.zoom(1 / 1.35),
      0: () => this.opened?.timelines.has("predicted") && this.diagram.fit(),
      Escape: () => this.pin(null),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Paper is light, has no scroll bars, and shows the whole diagram in its width. */
  print(on) {
    document.documentElement.classList.toggle("printed", on);
    this.diagram.print(on);
  }
}

readRun().then(
  (run) => { window.page = new Page(run); },
  (error) => {
    byId("title").replaceChildren(make("h2", "", "This report cannot be shown"), make("p", "facts", String(error)));
  },
);
