// What came of a case, in words: the verdict, what the terminal tells, what the diagnosis means.

function showTitle(root, opened) {
  const verdict = make("span", `verdict ${opened.verdict}`);
  const glyph = make("span", "glyph", GLYPHS[opened.verdict]);
  glyph.setAttribute("aria-hidden", "true");
  verdict.append(glyph, opened.verdict);
  const whole = opened.case === opened.file;
  const heading = make("h2", "", whole ? opened.file.split("/").at(-1) : opened.case);
  const facts = [opened.file];
  if (opened.took) facts.push(duration(opened.took));
  if (opened.runs) facts.push(`${opened.runs} runs`);
  if (opened.was) facts.push(`was ${opened.was.verdict} in ${duration(opened.was.took)}`);
  else if (opened.was === null) facts.push("new: the other run lacks it");
  facts.push(...opened.tags.map((tag) => `#${tag}`));
  const line = make("p", "facts", facts.join("  ·  "));
  root.replaceChildren(verdict, heading, line);
  const description = opened.description.trim();
  if (description) root.append(make("p", "description", description));
}

function showStory(root, opened, run) {
  const parts = [];
  if (opened.lines.length) parts.push(terminalBox(opened));
  if (opened.silent) {
    parts.push(make("p", "note warn", "The program is wrong, and the backend let it finish as if nothing were the matter."));
  }
  if (opened.changes?.length) parts.push(changesBox(opened.changes));
  const told = opened.lines.map(([text]) => text.trim()).join(" ");
  for (const each of opened.diagnoses) parts.push(diagnosisBox(each, told, run.explanations[each.name]));
  for (const each of opened.cost ?? []) parts.push(make("p", "note cost", each));
  for (const note of opened.notes) parts.push(make("p", "note", note));
  if (opened.undrawn) {
    parts.push(make("p", "note", `There is no picture: ${opened.undrawn.toLocaleString("en")} steps are too many for one.`));
  }
  root.replaceChildren(...parts);
  root.hidden = !parts.length;
}

/** What the case did otherwise in the run that this one is compared with. */
function changesBox(changes) {
  const box = make("div", "diagnosis changes");
  box.append(make("strong", "", "Otherwise than in the other run"));
  const list = make("ul");
  for (const each of changes) list.append(make("li", "", each));
  box.append(list);
  return box;
}

/** The words of the terminal, line by line; columns are not broken, and a heading is one line again. */
function terminalBox(opened) {
  const margin = Math.min(...opened.lines.map(([text]) => (text.trim() ? text.search(/\S/) : 99)));
  const box = make("pre", `told ${opened.verdict}`);
  box.tabIndex = 0;
  opened.lines.forEach(([text, style], at) => {
    if (style === "strong" && !text.trim().startsWith("error[") && opened.lines[at - 1]?.[1] === "strong") {
      box.lastChild.append(` ${text.trim()}`);
      return;
    }
    if (at) box.append("\n");
    const aligned = style === "caret" || opened.lines[at + 1]?.[1] === "caret" || text.includes("│");
    box.append(make("span", aligned ? `${style} aligned` : style, text.slice(margin)));
  });
  return box;
}

/** A diagnosis: what such a fault is; who waits for whom, unless that was just shown. */
function diagnosisBox({ name, prose }, told, explanation) {
  const box = make("div", "diagnosis");
  const more = make("details");
  const heading = make("summary");
  heading.append(make("strong", "", name), explanation ? explanation.what : "");
  more.append(heading);
  if (explanation) {
    for (const part of explanation.why.split("\n\n")) {
      more.append(make("p", part.startsWith("    ") ? "why tabular" : "why", part));
    }
    more.append(make("p", "why", `Fix: ${explanation.fix}`));
  }
  box.append(more);
  const clauses = prose.split("; ");
  if (!clauses.every((clause) => told.includes(clause))) {
    const list = make("ul");
    clauses.forEach((clause) => list.append(make("li", "", clause)));
    box.append(list);
  }
  return box;
}

/** Return what there is to say about a span, line by line. */
function wordsAbout(opened, timeline, at) {
  const span = spanAt(timeline, at.lane, at.position);
  const host = timeline.lanes[at.lane].host;
  const same = equals(timeline.lanes[span.lane]);
  const lines = [`rank ${span.rank}${host ? ` on ${host}` : ""}: ${span.label}${span.iteration.length ? ` (iteration ${span.iteration.join(", ")})` : ""}`];
  if (same) lines.push(same);
  if (span.state !== "d") lines.push(span.state === "b" ? "stuck" : STATES[span.state]);
  if (STUCK.includes(span.state)) {
    const peers = timeline.edges.filter((edge) => edge.waiter === span.rank);
    for (const edge of peers.slice(0, 6)) lines.push(`waits for rank ${edge.peer} ${edge.because}`);
    if (peers.length > 6) lines.push(`… and for ${peers.length - 6} more ranks`);
  }
  if (span.raised) lines.push(span.raised);
  if (isWrong(opened, span)) {
    for (const place of opened.places) {
      if (place.index === span.index && place.ranks?.includes(span.rank)) lines.push(place.says);
    }
  }
  if (span.took > 0) lines.push(`took ${duration(span.took)}`);
  return lines.join("\n");
}
