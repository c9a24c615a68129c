// The start of the page.

import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";

mount(App, { target: document.getElementById("app") as HTMLElement });

// The worker keeps the page itself, so that stored conversations can be read without the network.
if (import.meta.env.PROD && "serviceWorker" in navigator) void navigator.serviceWorker.register("/sw.js").catch(() => {});
