// The space-time diagram: a scrolled box whose canvas stays in place and shows what is visible.

const TALLEST = 0.62; // of the window
const PAPER = 700; // the width of a printed page

class Diagram {
  constructor(wishes) {
    this.wishes = wishes; // { hover(at|null), pin(at|null) }
    this.scroll = byId("scroll");
    this.canvas = byId("canvas");
    this.painter = new Painter(this.canvas);
    this.spacer = make("div", "spacer");
    this.scroll.append(this.spacer);
    this.lit = { line: null, pinned: null, hovered: null };
    this.scroll.addEventListener("scroll", () => this.redraw());
    this.scroll.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => wishes.hover(null));
    this.canvas.addEventListener("click", (event) => {
      wishes.pin(this.under(event));
      this.canvas.focus({ preventScroll: true });
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    byId("in").addEventListener("click", () => this.zoom(1.35));
    byId("out").addEventListener("click", () => this.zoom(1 / 1.35));
    byId("fit").addEventListener("click", () => this.fit());
    new ResizeObserver(() => this.resize()).observe(this.scroll);
  }

  /** Show a timeline of a case; keep the place where another witness of the same case is shown. */
  show(opened, timeline, keep) {
    const before = keep && this.geometry;
    this.opened = opened;
    this.timeline = timeline;
    this.geometry = new Geometry(timeline);
    this.looks = new Looks(opened, timeline);
    this.hues = groupsOf(timeline);
    this.recolor();
    this.scroll.style.height = "";
    if (before) Object.assign(this.geometry, { column: before.column, lane: before.lane });
    else this.geometry.settle(this.scroll.clientWidth, window.innerHeight * TALLEST);
    this.layout();
    if (!before) this.scroll.scrollTo(0, 0);
  }

  recolor() {
    if (!this.geometry) return;
    this.palette = readPalette(this.hues);
    this.looks.color(this.palette);
    this.redraw();
  }

  layout() {
    if (!this.geometry) return;
    const { geometry, scroll, spacer } = this;
    const height = Math.min(geometry.height, window.innerHeight * TALLEST);
    scroll.style.height = `${Math.ceil(height) + (geometry.width > scroll.clientWidth ? 14 : 0)}px`;
    spacer.style.width = `${Math.floor(geometry.width)}px`;
    spacer.style.height = `${Math.floor(geometry.height)}px`;
    this.size();
    this.redraw();
  }

  size(ratio = window.devicePixelRatio || 1) {
    const { canvas, scroll } = this;
    const [width, height] = [scroll.clientWidth, scroll.clientHeight];
    this.ratio = ratio;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w;
      canvas.height = h;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.view = { width, height };
  }

  resize() {
    if (!this.geometry || !this.scroll.clientWidth) return;
    if (this.view && this.view.width === this.scroll.clientWidth && this.view.height === this.scroll.clientHeight) return;
    this.layout();
  }

  redraw() {
    if (this.asked || !this.geometry || !this.view) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.draw();
    });
  }

  draw() {
    if (!this.view.width || !this.view.height) return; // nothing of it is visible yet
    const { scrollLeft: left, scrollTop: top } = this.scroll;
    const view = { ...this.view, left, top, ratio: this.ratio };
    this.painter.paint(this.geometry, this.looks, this.palette, view, this.lit);
  }

  light(lit) {
    Object.assign(this.lit, lit);
    this.redraw();
  }

  // ------------------------------------------------------------------ pointing

  inside(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  under(event) {
    const [x, y] = this.inside(event);
    if (x < LABELS) return null;
    return this.geometry.at(x + this.scroll.scrollLeft, y + this.scroll.scrollTop);
  }

  point(event) {
    const at = this.under(event);
    const before = this.lit.hovered;
    if (at?.lane === before?.lane && at?.position === before?.position) return;
    this.wishes.hover(at, event);
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY / 400), this.inside(event));
  }

  // ------------------------------------------------------------------ zooming and scrolling

  /** Zoom about a point of the box, so that what is under it stays there. */
  zoom(factor, about) {
    const { geometry, scroll } = this;
    const [x, y] = about || [scroll.clientWidth / 2, scroll.clientHeight / 2];
    const column = (scroll.scrollLeft + x - LABELS) / geometry.column;
    const lane = (scroll.scrollTop + y - HEAD) / geometry.lane;
    geometry.zoom(factor);
    this.layout();
    scroll.scrollLeft = LABELS + column * geometry.column - x;
    scroll.scrollTop = HEAD + lane * geometry.lane - y;
    this.redraw();
  }

  fit() {
    this.geometry.fit(this.scroll.clientWidth, window.innerHeight * TALLEST);
    this.layout();
  }

  /** Bring a span into view. */
  reveal({ lane, position }) {
    const { geometry, scroll } = this;
    const column = this.timeline.lanes[lane].column[position];
    const [x, y] = [geometry.x(column), geometry.y(lane)];
    const right = x + geometry.column;
    if (x < scroll.scrollLeft + LABELS || right > scroll.scrollLeft + scroll.clientWidth) {
      const whole = geometry.width <= scroll.clientWidth;
      scroll.scrollLeft = whole ? 0 : Math.max(0, x - LABELS - (scroll.clientWidth - LABELS) * 0.6);
    }
    if (y < scroll.scrollTop || y + geometry.lane > scroll.scrollTop + scroll.clientHeight) {
      scroll.scrollTop = Math.max(0, y - scroll.clientHeight / 2);
    }
  }

  /** Return where a span is on the screen: left, top, width, height. */
  placeOf({ lane, position }) {
    const box = this.geometry.box(lane, position);
    const corner = this.canvas.getBoundingClientRect();
    return {
      x: corner.left + box.x - this.scroll.scrollLeft,
      y: corner.top + box.y - this.scroll.scrollTop,
      w: Math.min(box.w, this.geometry.column), h: box.h,
    };
  }

  // ------------------------------------------------------------------ the keyboard

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const next = this.towards(event.key);
    if (next === undefined) return;
    event.preventDefault();
    if (!next) return;
    this.wishes.pin(next);
    this.reveal(next);
  }

  /** Return the span that an arrow leads to; null where there is none, undefined for other keys. */
  towards(key) {
    const { lanes } = this.timeline;
    const from = this.lit.pinned;
    const keys = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];
    if (!keys.includes(key)) return undefined;
    if (!from) return this.beside(0, 0, 1);
    const last = lanes[from.lane].count - 1;
    const along = { ArrowLeft: from.position - 1, ArrowRight: from.position + 1, Home: 0, End: last };
    if (key in along) {
      return along[key] >= 0 && along[key] <= last ? { lane: from.lane, position: along[key] } : null;
    }
    const by = key === "ArrowUp" ? -1 : 1;
    return this.beside(from.lane + by, lanes[from.lane].column[from.position], by);
  }

  /** Return the span at a column, or the nearest to it, of the next lane that has one. */
  beside(lane, column, by) {
    for (; lane >= 0 && lane < this.geometry.lanes; lane += by) {
      const { count } = this.timeline.lanes[lane];
      if (count) return { lane, position: Math.min(this.geometry.first(lane, column), count - 1) };
    }
    return null;
  }

  // ------------------------------------------------------------------ paper

  /** On paper the whole diagram fits the page's width, drawn finely; then it is as it was. */
  print(on) {
    if (!this.geometry) return;
    const { geometry, scroll } = this;
    if (on) {
      this.kept = { column: geometry.column, lane: geometry.lane, left: scroll.scrollLeft, top: scroll.scrollTop };
      geometry.fit(PAPER, 900);
      scroll.scrollTo(0, 0);
      scroll.style.height = `${geometry.height}px`;
      scroll.style.width = `${PAPER}px`;
      this.size(3);
    } else if (this.kept) {
      Object.assign(geometry, { column: this.kept.column, lane: this.kept.lane });
      scroll.style.width = "";
      this.layout();
      scroll.scrollTo(this.kept.left, this.kept.top);
    }
    this.palette = readPalette(this.hues);
    this.looks.color(this.palette);
    this.draw();
  }
}
