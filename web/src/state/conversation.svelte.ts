// One open conversation: its tree, what is shown of it, and the answer that is being written.

import * as api from "../api/projects";
import { Problem, Unreachable } from "../api/http";
import { Tree, freeName, turnTo } from "../lib/conversation";
import { FinalError, follow, type RunLine } from "../lib/follow";
import { FramePainter } from "../lib/frame_painter";
import { addLine, newTurn, partsOf, type Turn } from "../lib/parts";
import { strings } from "../strings";
import { account, openNode, openTitle } from "./account.svelte";
import { storeConversation, storedConversation } from "./offline";
import { projects } from "./projects.svelte";
import { router } from "./router.svelte";
import { tabs } from "./tabs";

/** What is sent: a text, and images as data URLs. */
export interface Draft {
  text: string;
  images: { name: string; url: string }[];
  thinking: string;
  provider?: string;
  model?: string;
}

/** An answer that is being written, here or in another tab. */
export interface LiveRun {
  id: string;
  /** Names its message on the page, also after it is stored: so nothing that a person opened closes again. */
  key: string;
  branch: string;
  /** The words that it answers, until the server has stored them. */
  words: { text: string; images: Draft["images"] } | null;
  /** The node that it answers, if it is known. */
  parent: string | null;
  turn: Turn;
  connected: boolean;
  stopping: boolean;
}

/** What the page proposes after the server refused a message. */
export interface Offer {
  kind: "lock" | "stale" | "running";
  draft: Draft;
  lock?: { provider: string; model: string };
  run?: string;
}

const POLL_MS = 4000;
const TITLE_LENGTH = 60;
/** Pauses before the page looks whether there is a title. */
const TITLE_PAUSES_MS = [300, 700, 1500, 3000, 6000, 12_000];

export class Conversation {
  id = $state<string | null>(null);
  project = $state.raw<api.Project | null>(null);
  title = $state<string | null>(null);
  branches = $state.raw<api.Branch[]>([]);
  tree = $state.raw(new Tree<api.GraphNode>());
  nodes = $state.raw<Map<string, api.Node>>(new Map());
  /** The branch that is shown; `null` if the shown messages end on no branch. */
  branch = $state<string | null>(null);
  tip = $state<string | null>(null);
  live = $state<LiveRun | null>(null);
  offer = $state.raw<Offer | null>(null);
  error = $state<string | null>(null);
  missing = $state(false);
  fromStore = $state(false);
  loading = $state(false);
  locked = $state(false);
  /** Whether the model writes a title. */
  titling = $state(false);
  /** Turns that this page has seen being written, by node: they know how long the thinking took. */
  seen = $state.raw<Map<string, Turn>>(new Map());
  /** Names of messages on the page that were written while it was open, by node. */
  keys = new Map<string, string>();
  private following: AbortController | null = null;
  private closing: (() => void)[] = [];
  private loads = 0;

  sealed = $derived(this.project?.mode === "sealed");
  current = $derived(this.branches.find((branch) => branch.name === this.branch) ?? null);
  path = $derived(this.tree.path(this.shownTip()));
  elsewhere = $derived(this.tree.elsewhere(this.shownTip()));

  /** While an answer is written, the stored messages end with what it answers. */
  private shownTip(): string | null {
    const { live, tip } = this;
    return live && live.branch === this.branch ? live.parent : tip;
  }

  constructor() {
    const timer = setInterval(() => void this.poll(), POLL_MS);
    const onFocus = () => void this.poll();
    addEventListener("focus", onFocus);
    addEventListener("online", onFocus);
    this.closing = [
      () => clearInterval(timer),
      () => removeEventListener("focus", onFocus),
      () => removeEventListener("online", onFocus),
      tabs.listen((message) => {
        if (message.kind === "project" && message.id === this.id) void this.refresh();
      }),
    ];
  }

  close(): void {
    this.leave();
    this.closing.forEach((end) => end());
  }

  /** Shows another conversation, or none. */
  async show(id: string | null, branch: string | null): Promise<void> {
    if (id === this.id) {
      if (id && branch && branch !== this.branch) this.showBranch(branch);
      return;
    }
    this.leave();
    this.reset(id);
    if (!id) return;
    this.loading = true;
    try {
      await this.load(branch);
    } finally {
      this.loading = false;
    }
  }

  private leave(): void {
    this.following?.abort();
    this.following = null;
    this.live = null;
  }

  private reset(id: string | null): void {
    this.loads += 1;
    this.id = id;
    this.project = null;
    this.title = null;
    this.branches = [];
    this.tree = new Tree();
    this.nodes = new Map();
    this.seen = new Map();
    this.branch = null;
    this.tip = null;
    this.offer = null;
    this.error = null;
    this.missing = false;
    this.fromStore = false;
    this.locked = false;
    this.titling = false;
  }

  private async load(branch: string | null): Promise<void> {
    const id = this.id as string;
    const load = ++this.loads;
    try {
      const [project, graph] = await Promise.all([api.read(id), api.graph(id)]);
      if (load !== this.loads) return;
      this.fromStore = false;
      await this.take(project, project.branches ?? graph.branches, graph.nodes, branch);
      if (load !== this.loads) return;
      await this.fetchPath(load);
      if (load !== this.loads) return;
      this.attach();
      void this.keep();
    } catch (error) {
      if (load !== this.loads) return;
      if (error instanceof Unreachable) await this.loadStored(id, branch);
      else if (error instanceof Problem && error.status === 404) this.missing = true;
      else if (error instanceof Problem && error.status === 401) await account.load();
      else this.error = messageOf(error);
    }
  }

  private async take(project: api.Project, branches: api.Branch[], graph: api.GraphNode[], wish: string | null): Promise<void> {
    this.project = project;
    this.branches = branches.filter((branch) => !branch.deletedAt);
    this.tree = new Tree(graph);
    this.locked = project.mode === "sealed" && !(await account.openChat(project.id).catch(() => null));
    this.title = (await openTitle(project)) ?? projects.begun.get(project.id) ?? null;
    const wished = wish ?? this.branch;
    const branch = this.branches.find((one) => one.name === wished) ?? this.branches[0];
    if (this.tip && !this.branch && this.tree.nodes.has(this.tip)) return;
    this.branch = branch?.name ?? null;
    this.tip = branch?.head ?? null;
  }

  /** Loads the contents of the shown path, newest first. */
  private async fetchPath(load: number): Promise<void> {
    const id = this.id as string;
    const wanted = () => this.tree.path(this.tip).filter((node) => !this.nodes.has(node.id));
    if (this.branch) {
      for (let after: string | null | undefined; wanted().length > 0; ) {
        const page = await api.history(id, this.branch, after);
        if (load !== this.loads) return;
        await this.addNodes(page.nodes);
        after = page.next;
        if (!after) break;
      }
    }
    const rest = await Promise.all(wanted().map((node) => api.node(id, node.id)));
    if (load !== this.loads || rest.length === 0) return;
    await this.addNodes(rest);
  }

  private async addNodes(list: readonly api.Node[]): Promise<void> {
    const id = this.id as string;
    const open = await Promise.all(list.map((node) => openNode(id, node).catch(() => ({ ...node, unreadable: true }))));
    const nodes = new Map(this.nodes);
    for (const node of open) nodes.set(node.id, node);
    this.nodes = nodes;
  }

  private async loadStored(id: string, branch: string | null): Promise<void> {
    const stored = await storedConversation(id);
    projects.offline = true;
    if (!stored) {
      this.error = strings.error.network;
      return;
    }
    this.fromStore = true;
    await this.take(stored.project, stored.branches, stored.graph, branch);
    await this.addNodes(stored.nodes);
  }

  /** Stores a copy to read without the network: of a sealed conversation its sealed fields only. */
  private async keep(): Promise<void> {
    const { project, branches, tree } = this;
    if (!project) return;
    const sealed = project.mode === "sealed";
    const nodes = [...this.nodes.values()].map((node) =>
      sealed ? { ...node, content: undefined, contentBlocks: undefined, thinking_content: undefined, thinking_signature: undefined } : node,
    );
    await storeConversation({ project: sealed ? { ...project, title: null } : project, branches, graph: [...tree.nodes.values()], nodes });
  }

  /** Loads what has changed. */
  async refresh(): Promise<void> {
    if (this.id) await this.load(null);
  }

  private async poll(): Promise<void> {
    if (!this.id || document.hidden || this.loading || (this.live && !this.fromStore)) return;
    try {
      const project = await api.read(this.id);
      if (projects.offline) void projects.load();
      const branches = project.branches ?? [];
      const state = (list: readonly api.Branch[]) => list.map((branch) => `${branch.name} ${branch.head} ${branch.runId}`).join("\n");
      const titleOf = (one: api.Project | null) => one?.title ?? one?.encrypted_title;
      const isRenamed = titleOf(project) !== titleOf(this.project);
      if (this.fromStore || isRenamed || state(branches) !== state(this.branches)) await this.refresh();
      if (isRenamed) void projects.load();
    } catch {
      // The next poll tries again.
    }
  }

  showBranch(name: string): void {
    const branch = this.branches.find((one) => one.name === name);
    if (!branch) return;
    this.offer = null;
    this.branch = branch.name;
    this.tip = branch.head ?? null;
    this.updateAddress();
    void this.fetchShown();
  }

  /** Shows another version of a message. */
  turnTo(node: string): void {
    const { branch, tip } = turnTo(this.tree, this.branches, node, this.branch);
    this.offer = null;
    this.branch = branch;
    this.tip = tip;
    this.updateAddress();
    void this.fetchShown();
  }

  private async fetchShown(): Promise<void> {
    const load = ++this.loads;
    try {
      await this.fetchPath(load);
      if (load === this.loads) this.attach();
    } catch (error) {
      if (!(error instanceof Unreachable)) this.error = messageOf(error);
    }
  }

  private updateAddress(): void {
    if (!this.id) return;
    const query = this.branch && this.branch !== this.branches[0]?.name ? `?branch=${encodeURIComponent(this.branch)}` : "";
    router.go(`/p/${this.id}${query}`, { replace: true });
  }

  /** Reads the answer that is being written on the shown branch. */
  private attach(): void {
    const branch = this.current;
    if (!branch?.runId || this.live?.id === branch.runId) {
      if (this.live && this.live.branch !== this.branch) this.leave();
      return;
    }
    if (this.locked) return;
    this.leave();
    const head = branch.head ? this.tree.nodes.get(branch.head) : undefined;
    const parent = head?.role === "assistant" ? (head.parent ?? null) : (head?.id ?? null);
    this.live = { id: branch.runId, key: crypto.randomUUID(), branch: branch.name, words: null, parent, turn: newTurn(), connected: true, stopping: false };
    const run = branch.runId;
    const headers = account.headers(this.id as string);
    void this.read((after, signal) => api.events(run, after, headers, signal));
  }

  /** Begins a conversation with its first message. */
  async begin(draft: Draft, sealed: boolean): Promise<void> {
    const words = firstWords(draft.text);
    const body = { title: "", provider: draft.provider, model: draft.model };
    this.error = null;
    try {
      let project: api.Project;
      if (sealed) {
        const made = await account.newChatKey();
        project = await api.create({ ...body, mode: "sealed", keyCheck: made.check }, made.headers);
        await account.keepChatKey(project.id, made.key);
      } else {
        project = await api.create({ ...body, mode: "managed" });
      }
      this.leave();
      this.reset(project.id);
      this.project = project;
      projects.begun.set(project.id, words);
      this.title = words;
      this.branches = project.branches ?? [];
      this.branch = this.branches[0]?.name ?? null;
      router.go(`/p/${project.id}`);
      projects.changed();
      await this.send({ ...draft, provider: undefined, model: undefined });
      void this.awaitTitle(project.id, words);
    } catch (error) {
      this.error = messageOf(error);
      throw error;
    }
  }

  /** The server lets the model write a title after the first answer. If none comes, the first words are the title. */
  private async awaitTitle(id: string, words: string): Promise<void> {
    this.titling = true;
    const title = await this.findTitle(id);
    if (this.id === id) this.titling = false;
    if (title && this.id === id) this.title = title;
    if (!title) await api.rename(id, words, account.headers(id)).catch(() => undefined);
    projects.changed();
  }

  private async findTitle(id: string): Promise<string | null> {
    for (const pause of TITLE_PAUSES_MS) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      const title = await api.read(id).then(openTitle, () => null);
      if (title) return title;
    }
    return null;
  }

  /** Sends a message on the shown branch; resolves when the answer is complete. */
  async send(draft: Draft): Promise<void> {
    const { id } = this;
    if (!id) return;
    this.offer = null;
    this.error = null;
    if (!this.branch) {
      await this.branchFrom(draft.text, this.tip as string, draft);
      return;
    }
    await this.start("chat", this.branch, this.tip, draft, {
      branch: this.branch,
      message: messageOfDraft(draft),
      expectedHead: this.tip ?? undefined,
      llmProvider: draft.provider,
      llmModel: draft.model,
      ...thinkingOf(draft.thinking),
    });
  }

  /** Makes a branch that leaves from a node, and sends the message there. */
  async branchFrom(name: string, from: string, draft: Draft): Promise<void> {
    const branch = await this.newBranch(name, from, draft.provider, draft.model);
    if (branch) await this.send({ ...draft, provider: undefined, model: undefined });
  }

  async newBranch(name: string, fromRef: string, provider?: string, model?: string): Promise<api.Branch | null> {
    try {
      const branch = await api.branch(this.id as string, { name: freeName(this.branches, name), fromRef, provider, model });
      this.branches = [...this.branches, branch];
      this.leave();
      this.showBranch(branch.name);
      tabs.send({ kind: "project", id: this.id as string });
      return branch;
    } catch (error) {
      this.error = messageOf(error);
      return null;
    }
  }

  /** Says something else in the place of a message, on a new branch. */
  async edit(node: string, draft: Draft): Promise<void> {
    const branch = freeName(this.branches, draft.text);
    const parent = this.tree.nodes.get(node)?.parent ?? null;
    const lock = this.current;
    this.leave();
    this.branch = branch;
    this.tip = parent;
    await this.start("edit", branch, parent, draft, {
      nodeId: node,
      branch,
      message: messageOfDraft(draft),
      llmProvider: draft.provider ?? lock?.provider,
      llmModel: draft.model ?? lock?.model,
      ...thinkingOf(draft.thinking),
    });
    this.updateAddress();
  }

  /** Asks for another answer. At the end of a branch it becomes a sibling, elsewhere the question is asked on a new branch. */
  async regenerate(node: string): Promise<void> {
    const parent = this.tree.nodes.get(node)?.parent ?? null;
    if (this.branch && this.tip === node) {
      await this.start("regenerate", this.branch, parent, null, { nodeId: node, branch: this.branch, expectedHead: node });
      return;
    }
    // Elsewhere the same words are said again, on a new branch from the same place.
    const question = parent ? this.nodes.get(parent) : undefined;
    if (question?.role === "user") await this.edit(question.id, { text: question.content ?? "", images: imagesOf(question), thinking: "default" });
  }

  private async start(kind: api.TurnKind, branch: string, parent: string | null, draft: Draft | null, body: Record<string, unknown>): Promise<void> {
    const id = this.id as string;
    this.leave();
    const headers = account.headers(id);
    const words = draft ? { text: draft.text, images: draft.images } : null;
    const live: LiveRun = { id: "", key: crypto.randomUUID(), branch, words, parent, turn: newTurn(), connected: true, stopping: false };
    this.live = live;
    // A repeated request with this name reads the same run, so a lost answer to the first one does no harm.
    const request = { ...body, clientRequestId: crypto.randomUUID() };
    let run = "";
    try {
      await this.read(async (after, signal) => {
        if (run) return api.events(run, after, headers, signal);
        const begun = await api.begin(id, kind, request, headers, signal).catch((error: unknown) => {
          if (error instanceof Problem && error.status < 500) throw new FinalError(error.message, { cause: error });
          throw error;
        });
        run = begun.run;
        if (this.live) this.live.id = run;
        tabs.send({ kind: "project", id });
        return begun.lines;
      });
    } catch (error) {
      await this.refused(error, draft);
    }
  }

  /** Reads lines into the live answer until it is done, then loads what was stored. */
  private async read(connect: (after: number, signal: AbortSignal) => Promise<AsyncIterable<RunLine>>): Promise<void> {
    const controller = new AbortController();
    this.following = controller;
    const { signal } = controller;
    const painter = new FramePainter<RunLine>((lines) => {
      const { live } = this;
      if (!live || signal.aborted) return;
      for (const line of lines) addLine(live.turn, line, performance.now());
    });
    const onConnection = (connected: boolean) => {
      if (this.live && !signal.aborted) this.live.connected = connected;
    };
    try {
      for await (const line of follow({ connect, signal, onConnection })) painter.add(line);
    } catch (error) {
      if (signal.aborted) return;
      painter.flush();
      throw error;
    }
    painter.flush();
    await this.finish();
  }

  private async finish(): Promise<void> {
    const { live } = this;
    if (!live) return;
    const node = live.turn.done?.nodeId ?? null;
    if (node) this.seen = new Map(this.seen).set(node, $state.snapshot(live.turn) as Turn);
    if (node) this.keys.set(node, live.key);
    await this.load(live.branch);
    const parent = node ? this.tree.nodes.get(node)?.parent : null;
    if (parent && live.words) this.keys.set(parent, `${live.key} words`);
    // A turn that stored nothing still has to say why.
    if (!node) this.error = live.turn.error?.message ?? strings.message.empty;
    this.following = null;
    this.live = null;
    tabs.send({ kind: "project", id: this.id as string });
  }

  private async refused(error: unknown, draft: Draft | null): Promise<void> {
    this.following = null;
    this.live = null;
    const problem = error instanceof FinalError && error.cause instanceof Problem ? error.cause : null;
    const body = problem?.body;
    if (problem?.status === 409 && draft && body?.lock) {
      this.offer = { kind: "lock", draft, lock: body.lock as unknown as { provider: string; model: string } };
    } else if (problem?.status === 409 && draft && body?.runId) {
      this.offer = { kind: "running", draft, run: body.runId };
    } else if (problem?.status === 409 && draft && body?.head) {
      this.offer = { kind: "stale", draft };
    } else {
      this.error = messageOf(problem ?? error);
      if (problem?.status === 423) this.locked = true;
    }
  }

  /** Takes the offer: the message goes to a new branch. */
  async acceptOffer(): Promise<void> {
    const { offer } = this;
    if (!offer) return;
    this.offer = null;
    const from = this.tip ?? this.branch;
    if (from) await this.branchFrom(offer.draft.text, from, offer.draft);
  }

  /** Shows what the branch has now instead; returns the message that was not sent. */
  async readInstead(): Promise<Draft | null> {
    const { offer } = this;
    this.offer = null;
    await this.refresh();
    return offer?.draft ?? null;
  }

  async stop(): Promise<void> {
    const { live } = this;
    if (!live) return;
    live.stopping = true;
    if (live.id) await api.stop(live.id, account.headers(this.id as string)).catch((error: unknown) => (this.error = messageOf(error)));
    else this.leave();
  }

  async merge(from: string, summary: string): Promise<void> {
    try {
      await api.merge(this.id as string, { from, into: this.branch as string, summary: summary || undefined }, account.headers(this.id as string));
      await this.refresh();
      tabs.send({ kind: "project", id: this.id as string });
    } catch (error) {
      this.error = messageOf(error);
    }
  }
}

export function messageOf(error: unknown): string {
  if (error instanceof Unreachable) return strings.error.network;
  return error instanceof Error ? error.message : String(error);
}

function imagesOf(node: api.Node): Draft["images"] {
  return partsOf(node.contentBlocks ?? []).flatMap((part) =>
    part.kind === "media" && part.url?.startsWith("data:image/") ? [{ name: part.name ?? "", url: part.url }] : [],
  );
}

function messageOfDraft(draft: Draft): unknown {
  if (draft.images.length === 0) return draft.text;
  const images = draft.images.map(({ name, url }) => ({ type: "media", kind: "image", url, name }));
  return draft.text ? [{ type: "text", text: draft.text }, ...images] : images;
}

function thinkingOf(setting: string): { thinking?: unknown } {
  if (setting === "default") return {};
  if (setting === "off") return { thinking: false };
  if (setting === "on") return { thinking: true };
  return { thinking: /^\d+$/.test(setting) ? Number(setting) : setting };
}

function firstWords(text: string): string {
  const line = text.trim().split("\n")[0] ?? "";
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1).trimEnd()}\u2026` : line || strings.list.untitled;
}
