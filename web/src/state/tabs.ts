// Tells the other tabs of this browser what has changed. Other machines find out by asking the server.

export type TabMessage = { kind: "list" } | { kind: "project"; id: string };

class Tabs {
  private channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("throughline");

  send(message: TabMessage): void {
    this.channel?.postMessage(message);
  }

  listen(act: (message: TabMessage) => void): () => void {
    const listener = (event: MessageEvent<TabMessage>) => act(event.data);
    this.channel?.addEventListener("message", listener);
    return () => this.channel?.removeEventListener("message", listener);
  }
}

export const tabs = new Tabs();
