// How it ended: who died, and the wait-for graph at the right of the lanes.

/** Ranks that died: how, after their last span. */
function paintEnds(painter) {
  const { context, geometry, palette, timeline } = painter;
  if (geometry.lane < 12) return;
  context.textBaseline = "middle";
  for (let lane = painter.rows[0]; lane < painter.rows[1]; lane += 1) {
    const row = timeline.lanes[lane];
    if (row.ending !== "died") continue;
    const column = row.count ? row.column[row.count - 1] + 1 : 0;
    const x = geometry.x(column) + 6;
    const text = `† ${row.died || "died"}`;
    context.font = `600 12px ${palette.ui}`;
    const wide = context.measureText(text).width;
    context.fillStyle = palette.bg;
    context.fillRect(x - 4, geometry.middle(lane) - 9, wide + 8, 18);
    context.fillStyle = palette.bad;
    context.fillText(text, x, geometry.middle(lane));
  }
}

/** The wait-for graph, right of the lanes: who waits for whom, the cycle strong. */
function paintGraph(painter) {
  const { context, geometry, palette, timeline } = painter;
  if (!timeline.edges.length) return;
  const many = timeline.edges.length > 24;
  const sorted = [...timeline.edges].sort((a, b) => a.cycle - b.cycle);
  for (const edge of sorted) {
    const [from, to] = [timeline.laneOf.get(edge.waiter), timeline.laneOf.get(edge.peer)];
    if (from === undefined || to === undefined || from === to) continue;
    context.strokeStyle = context.fillStyle = edge.cycle ? palette.bad : palette.dim;
    context.globalAlpha = edge.cycle ? 1 : many ? 0.35 : 0.7;
    context.lineWidth = clamp(geometry.lane / 14, 0.7, edge.cycle ? 2.2 : 1.2);
    paintArc(painter, from, to, edge.cycle);
  }
  context.globalAlpha = 1;
}

function paintArc(painter, from, to, cycle) {
  const { context, geometry } = painter;
  const down = to > from; // a way up goes around one down, so that a pair is two arcs
  const shift = Math.min(6, geometry.lane / 7);
  const dot = clamp(geometry.lane / 11, 1, cycle ? 4.5 : 3.5);
  const head = clamp(geometry.lane / 5, 2.5, cycle ? 8 : 6);
  const start = [geometry.end + 14, geometry.middle(from) + shift * 0.5];
  const end = [geometry.end + 15 + dot, geometry.middle(to) - shift];
  const near = clamp(geometry.lane * 0.62, 10, 30);
  const bulge = Math.min(near * (1 + (Math.abs(to - from) - 1) * 0.55 + (down ? 0 : 0.5)), 96);
  context.beginPath();
  context.moveTo(...start);
  context.bezierCurveTo(start[0] + bulge, start[1] + shift, end[0] + bulge, end[1] - shift, end[0] + head * 0.8, end[1]);
  context.stroke();
  paintTip(painter, end, Math.PI, head);
  context.beginPath();
  context.arc(start[0], geometry.middle(from), dot, 0, 7);
  context.fill();
}
