// Who met whom: bars through collectives, arrows for messages, empty places for the ranks that are missing.

/** Collectives: a bar through all who take part; dashed where one is missing. */
function paintJoins(painter) {
  const { context, geometry, palette, timeline } = painter;
  const [from, to] = painter.rows;
  const inner = 2 * geometry.pad;
  context.lineWidth = clamp(geometry.column / 30, 0.6, 3);
  geometry.meetings(painter.columns[0], painter.columns[1], (meeting) => {
    if (meeting.kind === "message" || meeting.bottom < from || meeting.top > to) return;
    const { spans } = meeting;
    const [, , kind, , group] = timeline.steps[timeline.lanes[spans[0]].step[spans[1]]];
    const left = geometry.x(meeting.column) + geometry.gap;
    const x = geometry.bar(meeting, left);
    context.strokeStyle = context.fillStyle = meeting.complete ? palette.hue(kind, group || "world") : palette.bad;
    if (meeting.complete && geometry.column > 10) {
      context.globalAlpha = 0.13;
      for (let at = 2; at < spans.length; at += 2) {
        if (spans[at] !== spans[at - 2] + 1 || spans[at] < from || spans[at] > to) continue;
        context.fillRect(left, geometry.y(spans[at]) - geometry.pad, geometry.column - 2 * geometry.gap, inner);
      }
      context.globalAlpha = 1;
    }
    if (!meeting.complete) context.setLineDash([4, 3]);
    context.beginPath();
    context.moveTo(x, geometry.y(meeting.top) + geometry.pad);
    context.lineTo(x, geometry.y(meeting.bottom + 1) - geometry.pad);
    context.stroke();
    context.setLineDash([]);
  });
}

/** Where a collective's bar meets a span that takes part in it. */
function paintAccents(painter) {
  const { context, geometry, palette, timeline } = painter;
  const wide = clamp(geometry.column / 30, 0.6, 3);
  geometry.meetings(painter.columns[0], painter.columns[1], (meeting) => {
    if (meeting.kind === "message" || meeting.top === meeting.bottom) return;
    const { spans } = meeting;
    const [, , kind, , group] = timeline.steps[timeline.lanes[spans[0]].step[spans[1]]];
    context.fillStyle = meeting.complete ? palette.hue(kind, group || "world") : palette.bad;
    for (let at = 0; at < spans.length; at += 2) {
      if (spans[at] < painter.rows[0] || spans[at] > painter.rows[1]) continue;
      const left = geometry.x(timeline.lanes[spans[at]].column[spans[at + 1]]) + geometry.gap;
      context.fillRect(geometry.bar(meeting, left) - wide / 2, geometry.y(spans[at]) + geometry.pad, wide, geometry.lane - 2 * geometry.pad);
    }
  });
}

function paintMessages(painter) {
  const { context, geometry, palette } = painter;
  if (painter.column < 8) return;
  const thin = clamp(painter.column / 60, 0.5, 1.6);
  const fine = new Path2D();
  geometry.meetings(painter.columns[0], painter.columns[1], (meeting) => {
    if (meeting.kind !== "message" || meeting.bottom < painter.rows[0] - 1 || meeting.top > painter.rows[1]) return;
    if (painter.column < 24) return void (meeting.spans.length > 2 && addLine(painter, fine, meeting));
    context.strokeStyle = context.fillStyle = meeting.complete ? palette.message : palette.bad;
    context.lineWidth = thin;
    if (meeting.spans.length < 4) paintLost(painter, meeting);
    else paintArrow(painter, ...wayOf(painter, meeting), meeting.complete);
  });
  context.strokeStyle = palette.message;
  context.lineWidth = thin;
  context.globalAlpha = 0.6;
  context.stroke(fine);
  context.globalAlpha = 1;
}

/** A message where there is no room for an arrow: one line among others of the same path. */
function addLine(painter, path, meeting) {
  const [start, end] = wayOf(painter, meeting);
  path.moveTo(...start);
  path.lineTo(...end);
}

/** Return where a message leaves its sender's box, and where it comes to its receiver's. */
function wayOf(painter, { spans, completed }) {
  const { geometry } = painter;
  const { lanes } = painter.timeline;
  const [a, b] = [geometry.box(spans[0], spans[1]), geometry.box(completed[2], completed[3])];
  const [from, to] = [lanes[spans[0]].column[spans[1]], lanes[completed[2]].column[completed[3]]];
  const [down, same] = [completed[2] > spans[0], completed[2] === spans[0]];
  if (from >= to) {
    const part = geometry.column * (down ? 0.72 : 0.84);
    return [[geometry.x(from) + part, down ? a.y + a.h : a.y], [geometry.x(to) + part, down ? b.y : b.y + b.h]];
  }
  const inset = same ? 0 : Math.min(18, geometry.column * 0.14);
  const start = [geometry.x(from + 1) - geometry.gap - inset, same ? a.y + a.h / 2 : down ? a.y + a.h : a.y];
  return [start, [b.x + inset, same ? b.y + b.h / 2 : down ? b.y : b.y + b.h]];
}

function paintArrow(painter, start, end, complete) {
  const { context, palette } = painter;
  const head = clamp(painter.column / 14, 1.5, 7);
  const angle = Math.atan2(end[1] - start[1], end[0] - start[0]);
  const path = new Path2D();
  path.moveTo(...start);
  path.lineTo(end[0] - head * 0.8 * Math.cos(angle), end[1] - head * 0.8 * Math.sin(angle));
  if (painter.column > 60) {
    const [color, width] = [context.strokeStyle, context.lineWidth];
    context.strokeStyle = palette.bg;
    context.lineWidth = width + 2.5;
    context.stroke(path);
    context.strokeStyle = color;
    context.lineWidth = width;
  }
  if (!complete) context.setLineDash([4, 3]);
  context.stroke(path);
  context.setLineDash([]);
  if (head > 2) paintTip(painter, end, angle, head);
}

function paintTip(painter, end, angle, head) {
  const { context } = painter;
  context.beginPath();
  context.moveTo(...end);
  for (const side of [-0.42, 0.42]) {
    context.lineTo(end[0] - head * Math.cos(angle + side), end[1] - head * Math.sin(angle + side));
  }
  context.fill();
}

/** Who should have come to a collective and is nowhere at that time: an empty place. */
function paintAbsent(painter) {
  const { context, geometry, palette, timeline } = painter;
  if (painter.column < 12) return;
  const size = clamp(geometry.lane * 0.4, 8, 12);
  geometry.meetings(painter.columns[0], painter.columns[1], ({ kind, missing, column }) => {
    if (kind === "message") return;
    for (const rank of missing) {
      const lane = timeline.laneOf.get(rank);
      if (lane === undefined || lane < painter.rows[0] || lane >= painter.rows[1]) continue;
      const row = timeline.lanes[lane];
      if (row.column[firstAt(row, column)] === column || row.died !== null) continue;
      const path = new Path2D();
      const left = geometry.x(column) + geometry.gap;
      const [top, wide, high] = [geometry.y(lane) + geometry.pad, geometry.column - 2 * geometry.gap, geometry.lane - 2 * geometry.pad];
      path.roundRect(left, top, wide, high, clamp(painter.column / 20, 0, 5));
      context.fillStyle = palette.bg;
      context.fill(path);
      context.strokeStyle = palette.bad;
      context.lineWidth = 1.5;
      context.setLineDash([3, 4]);
      context.stroke(path);
      context.setLineDash([]);
      context.textBaseline = "middle";
      if (painter.column >= READABLE) painter.word("missing", `600 ${size}px ${palette.ui}`, palette.bad, left + 12, geometry.middle(lane), wide - 16);
    }
  });
}

/** A message that no rank receives, or that no rank sends; where a rank is stuck the graph shows it. */
function paintLost(painter, meeting) {
  const { context, geometry, timeline } = painter;
  const [lane, position] = meeting.spans;
  if (STUCK.includes(timeline.lanes[lane].state[position])) return;
  const box = geometry.box(lane, position);
  const peer = timeline.laneOf.get(meeting.missing[0]);
  const down = peer === undefined || peer > lane;
  const x = geometry.x(meeting.column) + geometry.column * (down ? 0.72 : 0.84);
  const from = down ? box.y + box.h : box.y;
  const to = from + (down ? 1 : -1) * (geometry.pad * 2 + 5);
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(x, from);
  context.lineTo(x, to);
  context.stroke();
  context.setLineDash([]);
  context.font = `700 11px ${painter.palette.ui}`;
  context.textBaseline = "middle";
  context.fillText("✕", x + 4, to);
}
