// What is pointed at: the step's spans, the span, and those it meets with.

function paintMarks(painter) {
  const { context, palette, lit, timeline } = painter;
  context.lineJoin = "round";
  if (lit.line !== null) {
    context.lineWidth = 2;
    context.strokeStyle = palette.focus;
    context.fillStyle = palette.focus;
    const path = new Path2D();
    for (let lane = painter.rows[0]; lane < painter.rows[1]; lane += 1) {
      const row = timeline.lanes[lane];
      const start = painter.geometry.first(lane, painter.columns[0]);
      for (let at = Math.max(0, start - 1); at < row.count; at += 1) {
        if (row.column[at] > painter.columns[1]) break;
        if (timeline.steps[row.step[at]][5] !== lit.line) continue;
        const box = painter.geometry.box(lane, at);
        path.roundRect(box.x - 1, box.y - 1, box.w + 2, box.h + 2, clamp(painter.column / 20, 0, 6));
      }
    }
    context.globalAlpha = 0.12;
    context.fill(path);
    context.globalAlpha = 0.75;
    context.stroke(path);
    context.globalAlpha = 1;
  }
  if (lit.hovered) paintPartners(painter, lit.hovered);
  if (lit.pinned) paintRing(painter, lit.pinned, 3);
  if (lit.hovered) paintRing(painter, lit.hovered, 2);
}

/** Those who take part in the same: a faint line around each. */
function paintPartners(painter, at) {
  const { context, geometry, palette } = painter;
  const found = geometry.partners(at);
  if (!found.length) return;
  const path = new Path2D();
  for (let end = 0; end < found.length; end += 2) {
    if (found[end] < painter.rows[0] || found[end] >= painter.rows[1]) continue;
    const box = geometry.box(found[end], found[end + 1]);
    path.roundRect(box.x - 1, box.y - 1, box.w + 2, box.h + 2, clamp(painter.column / 20, 0, 6));
  }
  context.strokeStyle = palette.focus;
  context.lineWidth = 1.5;
  context.globalAlpha = 0.55;
  context.stroke(path);
  context.globalAlpha = 1;
}

function paintRing(painter, at, width) {
  const { context, palette, geometry } = painter;
  const box = geometry.box(at.lane, at.position);
  context.strokeStyle = palette.bg;
  context.lineWidth = width + 2.5;
  const path = new Path2D();
  path.roundRect(box.x - 1.5, box.y - 1.5, box.w + 3, box.h + 3, clamp(painter.column / 18, 0, 6));
  context.stroke(path);
  context.strokeStyle = palette.focus;
  context.lineWidth = width;
  context.stroke(path);
}
