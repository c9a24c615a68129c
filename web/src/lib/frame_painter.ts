// Keeps the page smooth while many lines arrive.

/** Collects lines and hands them over once per frame, however many arrive. */
export class FramePainter<Line> {
  private lines: Line[] = [];
  private isWaiting = false;

  constructor(private readonly paint: (lines: Line[]) => void) {}

  add(line: Line): void {
    this.lines.push(line);
    if (this.isWaiting) return;
    this.isWaiting = true;
    // A hidden page gets no frames, but its state must not fall behind.
    if (document.hidden) setTimeout(() => this.flush(), 100);
    else requestAnimationFrame(() => this.flush());
  }

  flush(): void {
    this.isWaiting = false;
    const { lines } = this;
    this.lines = [];
    if (lines.length > 0) this.paint(lines);
  }
}
