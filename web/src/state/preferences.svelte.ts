// What a person has set in this browser.

export type Theme = "system" | "light" | "dark";

const PREFIX = "throughline.";

function load(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null;
  }
}

function store(name: string, value: string): void {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // Without storage a setting lasts until the page is closed.
  }
}

class Preferences {
  theme = $state<Theme>(readTheme());
  /** Whether thinking opens by itself while it is written. */
  openThinking = $state(load("openThinking") === "true");
  /** The last chosen model, as `provider/model`. */
  model = $state(load("model") ?? "");
  /** The last chosen thinking setting. */
  thinking = $state(load("thinking") ?? "default");
  /** The name of the person in rooms, where no user is logged in. */
  name = $state(load("name") ?? "");

  setTheme(theme: Theme): void {
    this.theme = theme;
    store("theme", theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  setOpenThinking(open: boolean): void {
    this.openThinking = open;
    store("openThinking", String(open));
  }

  setModel(model: string): void {
    this.model = model;
    store("model", model);
  }

  setName(name: string): void {
    this.name = name;
    store("name", name);
  }

  setThinking(thinking: string): void {
    this.thinking = thinking;
    store("thinking", thinking);
  }
}

function readTheme(): Theme {
  const theme = load("theme");
  return theme === "light" || theme === "dark" ? theme : "system";
}

export const preferences = new Preferences();
