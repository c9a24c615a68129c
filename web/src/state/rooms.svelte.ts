// The list of rooms.

import * as api from "../api/rooms";
import { Unreachable } from "../api/http";
import { tabs } from "./tabs";

class Rooms {
  entries = $state.raw<api.Room[]>([]);
  failed = $state(false);

  constructor() {
    tabs.listen((message) => {
      if (message.kind === "list") void this.load();
    });
  }

  async load(): Promise<void> {
    try {
      this.entries = await api.list();
      this.failed = false;
    } catch (error) {
      // Without the network, the page says so in another place.
      this.failed = !(error instanceof Unreachable);
    }
  }

  async create(title: string): Promise<api.Room> {
    const room = await api.create(title);
    this.changed();
    return room;
  }

  /** Loads the list here and in the other tabs. */
  changed(): void {
    tabs.send({ kind: "list" });
    void this.load();
  }
}

export const rooms = new Rooms();
