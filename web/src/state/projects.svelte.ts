// The list of conversations, and the models that a new one can have.

import * as api from "../api/projects";
import { Problem, Unreachable } from "../api/http";
import { account, openTitle } from "./account.svelte";
import { forgetConversation, storeList, storedList } from "./offline";
import { tabs } from "./tabs";

export interface ListEntry {
  project: api.Project;
  title: string | null;
  snippet?: string;
}

/** A model that can be chosen, with its provider. */
export interface Choice {
  value: string;
  provider: api.Provider;
  model: api.Model;
}

class Projects {
  entries = $state.raw<ListEntry[]>([]);
  query = $state("");
  failed = $state(false);
  /** Whether the server could not be reached, so copies of this browser are shown. */
  offline = $state(false);
  loaded = $state(false);
  providers = $state.raw<api.Provider[]>([]);
  deleted = $state.raw<api.Project | null>(null);
  /** The first words of conversations that this page has begun, until they have a title. */
  readonly begun = new Map<string, string>();
  private turn = 0;

  constructor() {
    tabs.listen((message) => {
      if (message.kind === "list") void this.load();
    });
  }

  choices = $derived<Choice[]>(
    this.providers
      .filter((provider) => provider.configured)
      .flatMap((provider) => provider.models.map((model) => ({ value: `${provider.id}/${model.id}`, provider, model }))),
  );

  get defaultChoice(): Choice | undefined {
    const provider = this.providers.find((one) => one.default) ?? this.providers[0];
    return (
      this.choices.find((choice) => choice.provider === provider && choice.model.id === provider?.defaultModel) ??
      this.choices.find((choice) => choice.provider === provider) ??
      this.choices[0]
    );
  }

  find(provider: string, model: string): Choice | undefined {
    return this.choices.find((choice) => choice.provider.id === provider && choice.model.id === model);
  }

  async loadProviders(): Promise<void> {
    this.providers = await api.providers().catch(() => this.providers);
  }

  async load(): Promise<void> {
    const turn = ++this.turn;
    try {
      const [list, found] = await this.ask();
      if (turn !== this.turn) return;
      await this.show(list, found, turn);
      this.failed = false;
      this.offline = false;
      if (!this.query) void storeList(list);
    } catch (error) {
      if (turn !== this.turn) return;
      const stored = error instanceof Unreachable ? await storedList() : undefined;
      this.offline = error instanceof Unreachable;
      this.failed = !stored;
      if (stored) await this.show(stored, [], turn);
      if (error instanceof Problem && error.status === 401) await account.load().catch(() => {});
    }
    this.loaded = true;
  }

  private async ask(): Promise<[api.Project[], api.Project[]]> {
    const query = this.query.trim();
    if (!query) return [await api.list(), []];
    // The server cannot search sealed titles; this page can, because it has opened them.
    return Promise.all([api.list(), api.searchContents(query)]);
  }

  private async show(list: api.Project[], found: api.Project[], turn: number): Promise<void> {
    const query = this.query.trim().toLowerCase();
    const snippets = new Map(found.map((project) => [project.id, project.matches?.[0]?.snippet]));
    const all = await Promise.all(list.map(async (project) => ({ project, title: (await openTitle(project)) ?? this.begun.get(project.id) ?? null })));
    if (turn !== this.turn) return;
    this.entries = all
      .filter(({ project, title }) => !query || title?.toLowerCase().includes(query) || snippets.has(project.id))
      .map((entry) => ({ ...entry, snippet: snippets.get(entry.project.id) }));
  }

  async remove(project: api.Project): Promise<void> {
    await api.remove(project.id);
    this.deleted = project;
    void forgetConversation(project.id);
    this.changed();
  }

  async undo(): Promise<void> {
    if (!this.deleted) return;
    await api.restore(this.deleted.id);
    this.deleted = null;
    this.changed();
  }

  /** Loads the list here and in the other tabs. */
  changed(): void {
    tabs.send({ kind: "list" });
    void this.load();
  }
}

export const projects = new Projects();
