// Compares requests beside the page, so that large ones never block it.

import { diffRequests } from "./diff";

addEventListener("message", (event: MessageEvent<{ id: number; before: string; after: string }>) => {
  const { id, before, after } = event.data;
  try {
    postMessage({ id, diff: diffRequests(before, after) });
  } catch (error) {
    postMessage({ id, error: String(error) });
  }
});
