// The tree of a conversation: paths, siblings, branches and their drawing. Nodes are known by their place only.

export interface TreeNode {
  id: string;
  parent?: string | null;
  role: string;
  mergedFrom?: string | null;
}

export interface TreeBranch {
  name: string;
  head?: string | null;
}

/** The nodes of a conversation, with what follows each. */
export class Tree<N extends TreeNode = TreeNode> {
  readonly nodes = new Map<string, N>();
  private readonly children = new Map<string | null, string[]>();

  constructor(nodes: Iterable<N> = []) {
    for (const node of nodes) this.add(node);
  }

  add(node: N): void {
    if (!this.nodes.has(node.id)) {
      const parent = node.parent ?? null;
      const list = this.children.get(parent);
      if (list) list.push(node.id);
      else this.children.set(parent, [node.id]);
    }
    this.nodes.set(node.id, node);
  }

  /** The nodes from the first one to `tip`. */
  path(tip: string | null | undefined): N[] {
    const path: N[] = [];
    for (let node = tip ? this.nodes.get(tip) : undefined; node; ) {
      path.push(node);
      node = node.parent ? this.nodes.get(node.parent) : undefined;
    }
    return path.reverse();
  }

  childrenOf(id: string | null): string[] {
    return this.children.get(id) ?? [];
  }

  /** The nodes that answer the same words, or that say other words at the same place: the node itself included. */
  siblings(id: string): string[] {
    const node = this.nodes.get(id);
    if (!node) return [];
    return this.childrenOf(node.parent ?? null).filter((other) => this.nodes.get(other)?.role === node.role);
  }

  /** The newest node below a node: where a reader ends who takes the newest way at every fork. */
  newestLeaf(id: string): string {
    let at = id;
    for (let below = this.childrenOf(at); below.length > 0; below = this.childrenOf(at)) at = below.at(-1) as string;
    return at;
  }

  /** How many messages are not on the path to `tip`. */
  elsewhere(tip: string | null | undefined): number {
    return this.nodes.size - this.path(tip).length;
  }

  isOnPath(id: string, tip: string | null | undefined): boolean {
    for (let node = tip ? this.nodes.get(tip) : undefined; node; ) {
      if (node.id === id) return true;
      node = node.parent ? this.nodes.get(node.parent) : undefined;
    }
    return false;
  }
}

/**
 * Where a reader gets who turns to the sibling `id`: the branch whose path has it, the present one first, else the
 * newest node below it, which belongs to no branch any more.
 */
export function turnTo(
  tree: Tree,
  branches: readonly TreeBranch[],
  id: string,
  present?: string | null,
): { branch: string | null; tip: string } {
  const fitting = branches.filter((branch) => branch.head && tree.isOnPath(id, branch.head));
  const branch = fitting.find((one) => one.name === present) ?? fitting.at(-1);
  return branch ? { branch: branch.name, tip: branch.head as string } : { branch: null, tip: tree.newestLeaf(id) };
}

/** A name for a new branch that no branch has. */
export function freeName(branches: readonly TreeBranch[], wish: string): string {
  const taken = new Set(branches.map((branch) => branch.name));
  const base =
    wish
      .normalize("NFKD")
      .replace(/[^\w\s-]/g, "")
      .trim()
      .toLowerCase()
      .split(/[\s_-]+/)
      .slice(0, 4)
      .join("-")
      .slice(0, 32) || "branch";
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? base : `${base}-${number}`;
    if (!taken.has(name)) return name;
  }
}

export interface DrawnNode {
  id: string;
  column: number;
  row: number;
}

/** Places for a drawing: time goes down, each way that leaves another one gets a column of its own. */
export function drawTree(tree: Tree): { nodes: DrawnNode[]; columns: number } {
  const nodes: DrawnNode[] = [];
  const column = new Map<string, number>();
  let columns = 0;
  // Nodes come in the order in which they were made, so a parent always has its place before its children.
  let row = 0;
  for (const node of tree.nodes.values()) {
    const parent = node.parent ?? null;
    const first = tree.childrenOf(parent)[0] === node.id;
    let at = parent !== null && first ? column.get(parent) : undefined;
    if (at === undefined) {
      at = columns;
      columns += 1;
    }
    column.set(node.id, at);
    nodes.push({ id: node.id, column: at, row });
    row += 1;
  }
  return { nodes, columns };
}
