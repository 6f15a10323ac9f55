// The scenario's file: lines, coloured a little; the lines of a step belong together.

const TOKENS = /(#.*$)|("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(^\s*(?:- )*|[{,]\s*)([\w.$ -]+)(?=:(?:\s|$))|(?<=[:,[{]\s*|- )(-?\d[\w.]*|true|false|null)(?=\s*(?:[,\]}#]|$))/g;

class SourceView {
  constructor(root, wishes) {
    this.root = root;
    this.wishes = wishes; // { hover(line|null), choose(line) }
    this.lit = null;
    root.addEventListener("pointerover", (event) => this.hover(event));
    root.addEventListener("pointerleave", () => wishes.hover(null));
    root.addEventListener("focusin", (event) => this.hover(event));
    root.addEventListener("focusout", () => wishes.hover(null));
    root.addEventListener("click", (event) => this.choose(event));
    root.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") this.choose(event);
      if (event.key === "ArrowDown") this.step(event, 1);
      if (event.key === "ArrowUp") this.step(event, -1);
    });
  }

  show(opened) {
    this.lines = opened.text.split(/\r\n|\n|\r/);
    if (this.lines.at(-1) === "") this.lines.pop();
    const starts = new Set((opened.predicted?.steps || []).map((step) => step[5]).filter(Boolean));
    this.owner = owners(this.lines, starts);
    this.prose = proseOf(this.lines);
    const marked = new Map();
    for (const place of opened.places) {
      if (place.file === opened.file && place.line) {
        marked.set(place.line, [...(marked.get(place.line) || []), place]);
      }
    }
    const list = make("div", "lines");
    list.setAttribute("role", "list");
    this.rows = this.lines.map((text, at) => this.row(text, at + 1, starts, marked.get(at + 1)));
    list.append(...this.rows);
    const heading = make("h3");
    heading.append(...breakable(opened.file));
    this.root.replaceChildren(heading, list);
    this.root.hidden = !this.lines.length;
    this.light(null);
  }

  row(text, number, starts, places) {
    const row = make("div", "line");
    row.setAttribute("role", "listitem");
    row.dataset.line = number;
    if (starts.has(number)) {
      row.tabIndex = 0;
      row.classList.add("start");
    }
    if (this.owner[number]) row.classList.add("step");
    const code = make("code");
    code.append(...coloured(text, places || [], this.prose.has(number)));
    if (places) {
      row.classList.add("wrong");
      row.title = places.map((place) => place.says).join("\n");
    }
    row.append(make("span", "number", String(number)), code);
    return row;
  }

  lineOf(event) {
    const row = event.target.closest?.(".line");
    return row ? this.owner[Number(row.dataset.line)] || null : null;
  }

  hover(event) {
    const line = this.lineOf(event);
    if (line !== this.hovered) this.wishes.hover(line);
    this.hovered = line;
  }

  choose(event) {
    const line = this.lineOf(event);
    if (!line) return;
    event.preventDefault();
    this.wishes.choose(line);
  }

  step(event, by) {
    const starts = this.rows.filter((row) => row.tabIndex === 0);
    const next = starts[starts.indexOf(document.activeElement) + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  /** Light the lines of the step that starts at `line`; bring them into view if asked. */
  light(line, reveal) {
    this.lit = line;
    this.rows.forEach((row, at) => row.classList.toggle("lit", line !== null && this.owner[at + 1] === line));
    if (!reveal || line === null || !this.rows[line - 1]) return;
    const box = this.root.getBoundingClientRect();
    const at = this.rows[line - 1].getBoundingClientRect();
    if (at.top < box.top + 40 || at.bottom > box.bottom - 8) {
      this.root.scrollTop += at.top - box.top - box.height / 3;
    }
  }
}

/** Return the line of the dash before the step whose call is in a line: `- name: ...` above it. */
function beginning(lines, call) {
  if (!lines[call - 1]) return call;
  const lead = (number) => /^(\s*-\s+)*\s*/.exec(lines[number - 1])[0];
  const column = lead(call).length;
  for (let number = call; number > 0; number -= 1) {
    if (!lines[number - 1].trim()) continue;
    if (lead(number).length < column) break;
    if (lead(number).length === column && lead(number).includes("-")) return number;
  }
  return call;
}

/** Return for every line (from 1) the line at which its step starts: the deepest that holds it. */
function owners(lines, starts) {
  const found = [];
  const open = [];
  const begins = new Map([...starts].map((call) => [beginning(lines, call), call]));
  let last = 0;
  lines.forEach((text, at) => {
    const number = at + 1;
    const indent = text.search(/\S/);
    if (indent < 0) return; // a blank line belongs to what surrounds it
    while (open.length && indent <= open.at(-1).indent && number !== open.at(-1).begin) open.pop();
    if (begins.has(number)) open.push({ line: begins.get(number), begin: number, indent });
    if (open.length) {
      found[number] = open.at(-1).line;
      if (last && found[last] === found[number]) found.fill(found[number], last, number);
    }
    last = number;
  });
  return found;
}

/** Return the lines (from 1) of block scalars: words, whatever they look like. */
function proseOf(lines) {
  const found = new Set();
  let block = -1;
  lines.forEach((text, at) => {
    const indent = text.search(/\S/);
    if (block >= 0 && (indent < 0 || indent > block)) return void found.add(at + 1);
    block = /:\s*[>|][\d+-]*\s*(#.*)?$/.test(text) ? indent : -1;
  });
  return found;
}

function coloured(text, places, prose) {
  const parts = [];
  let done = 0;
  for (const match of prose ? [] : text.matchAll(TOKENS)) {
    const [whole, comment, string, before, key, number] = match;
    const start = match.index + (key === undefined ? 0 : before.length);
    const end = match.index + whole.length;
    const kind = comment ? "comment" : string ? "string" : key !== undefined ? "key" : number ? "num" : "";
    if (start > done) parts.push([text.slice(done, start), ""]);
    parts.push([text.slice(start, end), kind]);
    done = end;
  }
  parts.push([text.slice(done), ""]);
  return cut(parts, places, text.length).map(([word, kind]) => (kind ? make("span", kind, word) : word));
}

/** Mark the columns that are wrong: parts are cut where a mark starts or ends. */
function cut(parts, places, length) {
  const found = [];
  let at = 0;
  for (const [word, kind] of parts) {
    let rest = word;
    while (rest) {
      const inside = places.find((p) => at >= p.from && at < (p.to ?? length));
      const ends = places.flatMap((p) => [p.from, p.to ?? length]).filter((x) => x > at);
      const size = Math.min(rest.length, ...ends.map((x) => x - at));
      found.push([rest.slice(0, size), inside ? `${kind} mark`.trim() : kind]);
      rest = rest.slice(size);
      at += size;
    }
  }
  return found;
}
