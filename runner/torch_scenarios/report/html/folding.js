// Ranks that do the same are one lane: the same steps, in the same columns, with the same end.

const FOLDS = 17; // ranks from which equal ones are drawn as one

/** Return a timeline whose lanes are the first of their equals; `members` are the ranks of each. */
function foldLanes(opened, timeline) {
  const blamed = opened.places.map(({ ranks }) => new Set(ranks));
  const first = new Map();
  const lanes = [];
  const place = timeline.lanes.map((lane) => {
    const key = conductOf(timeline, lane, blamed);
    if (!first.has(key)) {
      first.set(key, lanes.length);
      lanes.push({ ...lane, members: [] });
    }
    const at = first.get(key);
    lanes[at].members.push(lane.rank);
    if (lane.host !== lanes[at].host) lanes[at].host = "";
    return at;
  });
  return {
    ...timeline, lanes, meetings: foldMeetings(timeline.meetings, place), edges: foldEdges(timeline, place),
    laneOf: new Map(timeline.lanes.map((lane, at) => [lane.rank, place[at]])),
  };
}

/** Return what a rank does, as words; a peer of a message is not part of it. */
function conductOf(timeline, lane, blamed) {
  const words = [lane.ending, lane.died, blamed.map((ranks) => (ranks.has(lane.rank) ? 1 : 0)).join("")];
  for (let at = 0; at < lane.count; at += 1) {
    const [index, , kind, operation, group] = timeline.steps[lane.step[at]];
    words.push(index, kind, operation, group, lane.iteration[at], lane.column[at], lane.state[at], lane.raised[at]);
  }
  return words.join("|");
}

/** Return the meetings between lanes: each once, and none of a lane with itself alone. */
function foldMeetings(meetings, place) {
  const seen = new Set();
  return meetings.flatMap((meeting) => {
    const spans = foldSpans(meeting.spans, place);
    const completed = meeting.completed === meeting.spans ? spans : foldSpans(meeting.completed, place);
    const key = `${meeting.kind}|${meeting.complete}|${spans}|${completed}`;
    const alone = meeting.kind === "message" && spans.length < 4 && meeting.spans.length >= 4;
    if (alone || seen.has(key)) return [];
    seen.add(key);
    return [{ ...meeting, spans, completed }];
  });
}

function foldSpans(spans, place) {
  const found = new Map();
  for (let at = 0; at < spans.length; at += 2) {
    const lane = place[spans[at]];
    found.set(`${lane}|${spans[at + 1]}`, [lane, spans[at + 1]]);
  }
  return [...found.values()].flat();
}

function foldEdges(timeline, place) {
  const found = new Map();
  for (const edge of timeline.edges) {
    const ends = [edge.waiter, edge.peer].map((rank) => place[timeline.laneOf.get(rank)]);
    const before = found.get(`${ends}`);
    if (before) before.cycle ||= edge.cycle;
    else found.set(`${ends}`, { ...edge });
  }
  return [...found.values()];
}

/** Return how a lane is called: its rank, and how many are equal to it. */
function laneName({ rank, members }) {
  return members?.length > 1 ? `${rank} ×${members.length}` : `${rank}`;
}

/** Return the ranks that are equal to a lane's, in words. */
function equals({ rank, members }) {
  const others = (members || []).filter((each) => each !== rank);
  if (!others.length) return "";
  const shown = others.slice(0, 8).join(", ");
  return `the same: ${others.length} more ranks (${shown}${others.length > 8 ? ", …" : ""})`;
}
