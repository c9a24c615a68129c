import { expect, test } from "vitest";

import { scrollTo, windowOf } from "../../src/lib/window";

test("a window has the visible rows and some around them, and keeps the whole height", () => {
  const shown = windowOf({ top: 4000, height: 400 }, 40, 1000, 5);
  expect(shown).toEqual({ first: 95, end: 115, before: 3800, after: 35400 });
  expect(shown.before + (shown.end - shown.first) * 40 + shown.after).toBe(40_000);
});

test("a window stays within the list", () => {
  expect(windowOf({ top: 0, height: 400 }, 40, 3)).toEqual({ first: 0, end: 3, before: 0, after: 0 });
  expect(windowOf({ top: 99_999, height: 400 }, 40, 3)).toEqual({ first: 3, end: 3, before: 120, after: 0 });
  expect(windowOf({ top: 0, height: 0 }, 40, 0)).toEqual({ first: 0, end: 0, before: 0, after: 0 });
});

test("scrolling to a row moves as little as possible", () => {
  const scroll = { top: 400, height: 200 };
  expect(scrollTo(scroll, 40, 12)).toBe(400);
  expect(scrollTo(scroll, 40, 5)).toBe(200);
  expect(scrollTo(scroll, 40, 20)).toBe(640);
});
