// The address of the page. All paths of docs/web.md answer the same document; this decides what it shows.

export type Route =
  | { name: "chat"; project: string | null; branch: string | null }
  | { name: "room"; id: string }
  | { name: "inspector"; turn: string | null }
  | { name: "unlock" }
  | { name: "unknown" };

export function routeOf(url: URL): Route {
  const parts = url.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  const [first, second] = parts;
  if (parts.length === 0) return { name: "chat", project: null, branch: null };
  if (first === "p" && second && parts.length === 2) {
    return { name: "chat", project: second, branch: url.searchParams.get("branch") };
  }
  if (first === "rooms" && second && parts.length === 2) return { name: "room", id: second };
  if (first === "inspector" && parts.length === 1) return { name: "inspector", turn: url.searchParams.get("turn") };
  if (first === "unlock" && parts.length === 1) return { name: "unlock" };
  return { name: "unknown" };
}

class Router {
  route = $state.raw<Route>(routeOf(new URL(location.href)));
  /** Where to go after unlocking. */
  after = "/";

  constructor() {
    addEventListener("popstate", () => this.read());
  }

  go(path: string, options: { replace?: boolean } = {}): void {
    if (path !== location.pathname + location.search) {
      if (options.replace) history.replaceState(null, "", path);
      else history.pushState(null, "", path);
    }
    this.read();
  }

  /** Goes to the page where keys are opened, and remembers the way back. */
  unlock(): void {
    if (this.route.name !== "unlock") this.after = location.pathname + location.search;
    this.go("/unlock");
  }

  /** Follows a link within the page, unless the person wants a new tab. */
  follow = (event: MouseEvent): void => {
    const link = event.currentTarget as HTMLAnchorElement;
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  };

  private read(): void {
    this.route = routeOf(new URL(location.href));
  }
}

export const router = new Router();
