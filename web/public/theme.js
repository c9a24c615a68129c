// Sets the chosen theme before the first paint. The page's own code comes later.
try {
  const theme = localStorage.getItem("throughline.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system decides.
}
