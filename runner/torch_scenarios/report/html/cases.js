// The list of cases: failures first, filtered by text and by verdict.

class CasesView {
  constructor(run, wishes) {
    this.run = run;
    this.wishes = wishes; // { open(number) }
    this.list = byId("list");
    this.filter = byId("filter");
    this.off = new Set();
    this.chips();
    this.options = run.cases.map((each, at) => this.option(each, at));
    this.filter.addEventListener("input", () => this.apply());
    this.filter.addEventListener("keydown", (event) => this.typed(event));
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) wishes.open(Number(option.dataset.at));
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.apply();
  }

  chips() {
    const counts = new Map(ORDER.map((verdict) => [verdict, 0]));
    for (const each of this.run.cases) counts.set(each.verdict, counts.get(each.verdict) + 1);
    for (const [verdict, count] of counts) {
      if (!count) continue;
      const chip = make("button", `chip ${verdict}`);
      chip.type = "button";
      chip.dataset.verdict = verdict;
      chip.setAttribute("aria-pressed", "true");
      const glyph = make("span", "glyph", GLYPHS[verdict]);
      glyph.setAttribute("aria-hidden", "true");
      chip.append(glyph, `${count} ${verdict.toLowerCase()}`);
      chip.addEventListener("click", () => this.toggle(verdict));
      byId("verdicts").append(chip);
    }
    this.changedChip();
  }

  /** Of two runs that are compared: show what changed alone. */
  changedChip() {
    const count = this.run.cases.filter((each) => each.changed).length;
    if (!count) return;
    const chip = make("button", "chip changed", `Δ ${count} changed`);
    chip.type = "button";
    chip.setAttribute("aria-pressed", "false");
    chip.addEventListener("click", () => {
      this.changedAlone = !this.changedAlone;
      chip.setAttribute("aria-pressed", String(this.changedAlone));
      this.apply();
    });
    byId("verdicts").before(chip);
  }

  /** The first choice shows that verdict alone; further ones add to it or take away. */
  toggle(verdict) {
    const all = [...byId("verdicts").children].map((chip) => chip.dataset.verdict);
    if (!this.off.size) this.off = new Set(all.filter((each) => each !== verdict));
    else if (!this.off.delete(verdict)) this.off.add(verdict);
    if (this.off.size === all.length) this.off.clear();
    for (const chip of byId("verdicts").children) {
      chip.setAttribute("aria-pressed", String(!this.off.has(chip.dataset.verdict)));
    }
    this.apply();
  }

  option(each, at) {
    const option = make("div", `option ${each.verdict}`);
    option.id = `case-${at}`;
    option.dataset.at = at;
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", "false");
    const glyph = make("span", "glyph", GLYPHS[each.verdict]);
    const whole = each.case === each.file;
    const parts = each.file.split("/");
    const words = make("span", "words");
    const name = make("span", "name");
    name.append(...breakable(whole ? parts.at(-1) : each.case));
    words.append(name);
    if (each.changed) words.append(make("span", "cause", each.was ? `Δ was ${each.was.verdict}` : "Δ new"));
    if (each.cause) words.append(make("span", "cause", each.cause));
    if (parts.length > 1) words.append(make("span", "path", parts.slice(0, -1).join("/")));
    option.append(glyph, words);
    const seen = [...words.children].map((part) => part.textContent).join(" ");
    option.setAttribute("aria-label", `${each.verdict}: ${seen}`);
    return option;
  }

  apply() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const held = (each) => `${each.file} ${each.case} ${each.verdict} ${each.cause} ${each.tags.join(" ")}`.toLowerCase();
    this.shown = this.run.cases.map((each, at) => at).filter((at) => {
      const each = this.run.cases[at];
      return (each.changed || !this.changedAlone) && !this.off.has(each.verdict) && words.every((word) => held(each).includes(word));
    });
    const none = make("p", "empty", this.run.cases.length ? "No case matches." : "There is no case.");
    this.list.replaceChildren(...(this.shown.length ? this.shown.map((at) => this.options[at]) : [none]));
  }

  typed(event) {
    if (event.key === "Escape") {
      this.filter.value = "";
      this.apply();
      this.list.focus();
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      this.list.focus();
      if (this.shown.length && !this.shown.includes(this.at)) this.wishes.open(this.shown[0]);
    }
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity, PageDown: 10, PageUp: -10 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    this.move(by);
  }

  /** Open the case so many further down the list as it is shown. */
  move(by) {
    if (!this.shown.length) return;
    const now = this.shown.indexOf(this.at);
    const next = now < 0 ? 0 : clamp(now + by, 0, this.shown.length - 1);
    this.wishes.open(this.shown[next]);
  }

  choose(at) {
    this.options[this.at]?.setAttribute("aria-selected", "false");
    this.at = at;
    this.options[at].setAttribute("aria-selected", "true");
    this.options[at].scrollIntoView({ block: "nearest" });
    this.list.setAttribute("aria-activedescendant", `case-${at}`);
  }
}
