import { describe, expect, test } from "vitest";

import { Tree, drawTree, freeName, turnTo } from "../../src/lib/conversation";

//  q1 - a1 - q2 - a2          main
//     \ b1 (older answer)     on no branch
//       a1 - q3 - a3          other
const nodes = [
  { id: "q1", parent: null, role: "user" },
  { id: "b1", parent: "q1", role: "assistant" },
  { id: "a1", parent: "q1", role: "assistant" },
  { id: "q2", parent: "a1", role: "user" },
  { id: "a2", parent: "q2", role: "assistant" },
  { id: "q3", parent: "a1", role: "user" },
  { id: "a3", parent: "q3", role: "assistant" },
];
const branches = [
  { name: "main", head: "a2" },
  { name: "other", head: "a3" },
];

describe("tree", () => {
  const tree = new Tree(nodes);

  test("a path goes from the first node to the tip", () => {
    expect(tree.path("a3").map((node) => node.id)).toEqual(["q1", "a1", "q3", "a3"]);
    expect(tree.path(null)).toEqual([]);
  });

  test("siblings share parent and role", () => {
    expect(tree.siblings("a1")).toEqual(["b1", "a1"]);
    expect(tree.siblings("q3")).toEqual(["q2", "q3"]);
    expect(tree.siblings("q1")).toEqual(["q1"]);
  });

  test("messages elsewhere are counted", () => {
    expect(tree.elsewhere("a2")).toBe(3);
    expect(tree.elsewhere("b1")).toBe(5);
  });

  test("turning to a sibling finds its branch, or the newest node below it", () => {
    expect(turnTo(tree, branches, "q3", "main")).toEqual({ branch: "other", tip: "a3" });
    expect(turnTo(tree, branches, "a1", "main")).toEqual({ branch: "main", tip: "a2" });
    expect(turnTo(tree, branches, "b1", "main")).toEqual({ branch: null, tip: "b1" });
  });

  test("adding a node twice keeps one place", () => {
    const growing = new Tree(nodes);
    growing.add({ id: "a2", parent: "q2", role: "assistant" });
    expect(growing.childrenOf("q2")).toEqual(["a2"]);
  });

  test("a drawing gives each way its own column", () => {
    const { nodes: drawn, columns } = drawTree(tree);
    const column = Object.fromEntries(drawn.map((node) => [node.id, node.column]));
    expect(columns).toBe(3);
    expect(column.q1).toBe(column.b1);
    expect(column.a1).toBe(column.q2);
    expect(column.q3).not.toBe(column.q2);
    expect(new Set(drawn.map((node) => node.row)).size).toBe(nodes.length);
  });
});

test("a free name is short, plain and not taken", () => {
  expect(freeName(branches, "Why two legs? And why not three of them")).toBe("why-two-legs-and");
  expect(freeName(branches, "main")).toBe("main-2");
  expect(freeName(branches, "漢字")).toBe("branch");
});
