// What stands around the cases: the theme, the keys, the address.

const KEYS = [
  ["j  k", "next and previous case"],
  ["/", "filter; Esc clears it"],
  ["o", "predicted or observed"],
  ["f", "first step that is not as predicted"],
  ["c", "go to the rank that the others wait for"],
  ["e", "equal ranks as one lane, or each its own"],
  ["s", "find a rank, a step or a group; Enter goes on, Esc leaves"],
  ["d", "go to the diagram"],
  ["← → ↑ ↓", "in the diagram: along a rank, to another rank; Home and End"],
  ["Enter", "on a line of the file: go to its step"],
  ["+  −  0", "larger, smaller, whole; Ctrl and the wheel, too"],
  ["Esc", "let go of a step"],
  ["t", "light or dark"],
  ["?", "these keys"],
];

/** Let a button change between light and dark, which the system chooses at first. */
function switchTheme(button, changed) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", changed);
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    changed();
  });
}

/** Fill the dialog that explains the keys, and let a button open it. */
function explainKeys(button, dialog) {
  const list = make("dl");
  for (const [keys, what] of KEYS) {
    const term = make("dt");
    for (const key of keys.split(/\s+/)) term.append(make("kbd", "", key), " ");
    list.append(term, make("dd", "", what));
  }
  const close = make("button", "", "Close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  dialog.append(make("h2", "", "Keys"), list, close);
  button.addEventListener("click", () => dialog.showModal());
}

function nameOf(each) {
  return each.case === each.file ? each.file : `${each.file}::${each.case}`;
}

/** Put the case into the address; where the page may not do that, it works all the same. */
function remember(name) {
  try {
    history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  } catch {
    // shown inside another page, without an address of its own
  }
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** Return paragraphs about the run that this one is compared with. */
function againstWords(against) {
  const words = [`compared with: ${against.summary}`, `${against.changed || "no"} ${against.changed === 1 ? "case" : "cases"} changed`];
  if (against.gone.length) words.push(`not in this run: ${against.gone.join(", ")}`);
  return words.map((each) => make("p", "against", each));
}

function environmentText(run) {
  const parts = [`torch-scenarios ${run.version}`];
  const { torch, backend } = run.environment;
  if (torch) parts.push(`torch ${torch}`);
  if (backend) parts.push(backend);
  return parts.join(" · ");
}
