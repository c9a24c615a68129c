// Which rows of a long list are on the screen. All rows have the same height.

export interface Window {
  first: number;
  /** One after the last row. */
  end: number;
  /** Room above the first row, and below the last one. */
  before: number;
  after: number;
}

export interface ScrollPosition {
  top: number;
  height: number;
}

export function windowOf(scroll: ScrollPosition, rowHeight: number, count: number, overscan = 8): Window {
  const first = Math.max(0, Math.min(count, Math.floor(scroll.top / rowHeight) - overscan));
  const end = Math.min(count, Math.max(first, Math.ceil((scroll.top + scroll.height) / rowHeight) + overscan));
  return { first, end, before: first * rowHeight, after: (count - end) * rowHeight };
}

/** The position that shows a row, moved as little as possible. */
export function scrollTo(scroll: ScrollPosition, rowHeight: number, row: number): number {
  const top = row * rowHeight;
  if (top < scroll.top) return top;
  if (top + rowHeight > scroll.top + scroll.height) return top + rowHeight - scroll.height;
  return scroll.top;
}
