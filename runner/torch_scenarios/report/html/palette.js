// Colours for the canvas, from the style sheet, so that light, dark and print have one source.
// Hue is never the only sign: what is stuck is hatched, what is wrong bears a ≠, groups a name.

const GROUP_HUES = ["--g0", "--g1", "--g2", "--g3", "--g4", "--g5"];
const KIND_HUES = { message: "--message", wait: "--message", creation: "--creation", local: "--local", expect: "--local" };

function readPalette(groups) {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const names = ["--bg", "--panel", "--fg", "--dim", "--rule", "--focus", "--bad", "--maybe", "--message", "--creation", "--local"];
  const colors = Object.fromEntries(names.map((name) => [name.slice(2), of(name)]));
  const hues = new Map(groups.map((group, at) => [group, of(GROUP_HUES[at % GROUP_HUES.length])]));
  const kinds = Object.fromEntries(Object.entries(KIND_HUES).map(([kind, name]) => [kind, of(name)]));
  const hue = (kind, group) => (kind === "collective" ? hues.get(group) || of("--g0") : kinds[kind]);
  return { ...colors, hue, hues, ui: of("--ui"), mono: of("--mono") };
}

/** Return the groups of a timeline that have collectives, the world first. */
function groupsOf(timeline) {
  const groups = new Set();
  for (const [, , kind, , group] of timeline.steps) if (kind === "collective") groups.add(group || "world");
  return [...groups].sort((a, b) => (b === "world") - (a === "world"));
}

/** How every span looks: a number a span into a short table, so that a frame only looks it up. */
class Looks {
  constructor(opened, timeline) {
    this.table = [];
    const numbers = new Map();
    const suspects = new Set(opened.places.map((place) => place.index));
    this.lanes = timeline.lanes.map((lane, at) => Uint16Array.from(lane.step, (step, position) => {
      const [index, , kind, , group] = timeline.steps[step];
      const state = lane.state[position];
      const raised = lane.raised[position] !== null;
      const last = position === lane.count - 1;
      const died = last && lane.died !== null;
      const ended = last && lane.ending === "raised";
      const wrong = suspects.has(index) && isWrong(opened, spanAt(timeline, at, position));
      const key = `${step}${state}${raised ? 1 : 0}${died ? 1 : 0}${ended ? 1 : 0}${wrong ? 1 : 0}`;
      if (!numbers.has(key)) {
        numbers.set(key, this.table.length);
        this.table.push({ kind, group: group || "world", state, raised, died, ended, wrong });
      }
      return numbers.get(key);
    }));
  }

  of(lane, position) {
    return this.table[this.lanes[lane][position]];
  }

  /** Give every look its colour; from afar many look alike, and those share a paint. */
  color(palette) {
    this.paints = [];
    this.paintOf = new Uint16Array(this.table.length);
    const known = new Map();
    this.table.forEach((look, number) => {
      look.bad = look.state === "b" || look.ended || look.died || look.wrong;
      look.color = look.bad ? palette.bad
        : look.state === "p" || look.raised ? palette.maybe : palette.hue(look.kind, look.group);
      look.quiet = ["local", "expect", "wait"].includes(look.kind);
      const [alpha, stuck] = [look.quiet ? 0.4 : 0.75, STUCK.includes(look.state) && !look.died];
      const key = `${look.color} ${alpha} ${stuck}`;
      if (!known.has(key)) {
        known.set(key, this.paints.length);
        this.paints.push({ color: look.color, alpha, stuck, pixel: pixelOf(look.color, alpha) });
      }
      this.paintOf[number] = known.get(key);
    });
  }
}
