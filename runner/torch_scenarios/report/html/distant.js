// A diagram from so far away that a call is a few pixels wide: a picture with one pixel for each,
// stretched lane by lane. A frame costs what its lanes and columns cost, however many colours there are.

const DISTANT = 5; // the width of a column below which the end of a call cannot be seen

function paintDistant(painter) {
  const { context, geometry, looks, picture, timeline } = painter;
  const [from, to] = painter.columns;
  const [top, bottom] = painter.rows;
  const [wide, high] = [to - from, bottom - top];
  if (!wide || !high) return;
  Object.assign(picture, { width: wide, height: high });
  const brush = picture.getContext("2d");
  const image = brush.createImageData(wide, high);
  const pixels = new Uint32Array(image.data.buffer);
  for (let lane = top; lane < bottom; lane += 1) {
    const { column } = timeline.lanes[lane];
    const numbers = looks.lanes[lane];
    const before = (lane - top) * wide - from;
    for (let at = geometry.first(lane, from); at < numbers.length && column[at] < to; at += 1) {
      const { pixel, stuck } = looks.paints[looks.paintOf[numbers[at]]];
      if (!stuck) pixels[before + column[at]] = pixel;
    }
  }
  brush.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  const tall = Math.max(1, Math.round(geometry.lane - 2 * geometry.pad));
  for (let lane = top; lane < bottom; lane += 1) {
    const y = Math.round(geometry.y(lane) + geometry.pad);
    context.drawImage(picture, 0, lane - top, wide, 1, geometry.x(from), y, wide * geometry.column, tall);
    paintNeverReturned(painter, lane, y, tall);
  }
}

/** A call that never returned reaches to the end, and beyond it, so that it is seen from afar. */
function paintNeverReturned({ context, geometry, looks, timeline }, lane, y, tall) {
  const { column, count } = timeline.lanes[lane];
  const { alpha, color, stuck } = count ? looks.paints[looks.paintOf[looks.lanes[lane][count - 1]]] : {};
  if (!stuck) return;
  const x = geometry.x(column[count - 1]);
  context.globalAlpha = alpha;
  context.fillStyle = color;
  context.fillRect(x, y, geometry.end + 4 - x, tall);
  context.globalAlpha = 1;
}

/** Return a colour of the style sheet as a pixel of a picture, in the order of this machine's bytes. */
function pixelOf(color, alpha) {
  const brush = Object.assign(make("canvas"), { width: 1, height: 1 }).getContext("2d");
  brush.fillStyle = color;
  brush.fillRect(0, 0, 1, 1);
  const { data } = brush.getImageData(0, 0, 1, 1);
  data[3] = Math.round(alpha * 255);
  return new Uint32Array(data.buffer)[0];
}
