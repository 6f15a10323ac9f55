// The names of the ranks, which stay at the left while the lanes are scrolled.
function paintNames(painter) {
  const { context, geometry, palette, timeline, view } = painter;
  const left = view.left;
  context.fillStyle = palette.bg;
  context.fillRect(left, view.top, LABELS - 4, view.height);
  context.textBaseline = "middle";
  context.textAlign = "right";
  const size = clamp(geometry.lane * 0.6, 7, 12.5);
  const every = Math.ceil(9 / geometry.lane);
  for (let lane = painter.rows[0]; lane < painter.rows[1]; lane += 1) {
    if (lane % every) continue;
    const row = timeline.lanes[lane];
    const bad = row.ending === "blocked" || row.ending === "died" || row.ending === "raised";
    context.font = `${bad ? 700 : 500} ${size}px ${palette.ui}`;
    context.fillStyle = bad ? palette.bad : row.ending === "possibly_blocked" ? palette.maybe : palette.dim;
    const name = geometry.lane < 12 || row.rank > 99 || row.members?.length > 1 ? laneName(row) : `rank ${row.rank}`;
    const ending = row.ending === "finished" ? "" : row.ending === "blocked" ? "stuck" : row.ending.replace("_", " ");
    const below = [ending, row.host].filter(Boolean).join(" · ");
    const low = geometry.lane >= TWO_LINES && below ? 7 : 0;
    context.fillText(name, left + LABELS - 14, geometry.middle(lane) - low);
    if (low) {
      context.font = `11px ${palette.ui}`;
      context.fillText(below, left + LABELS - 14, geometry.middle(lane) + 8, LABELS - 18);
    }
  }
  context.textAlign = "left";
}
