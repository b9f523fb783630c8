// Runs before everything else on the page: remembers what goes wrong.
window.failures = [];
window.addEventListener("error", (event) => failures.push("error: " + event.message));
window.addEventListener("unhandledrejection", (event) => failures.push("rejected: " + event.reason));
for (const kind of ["error", "warn"]) {
  const plain = console[kind];
  console[kind] = (...words) => { failures.push(kind + ": " + words.join(" ")); plain(...words); };
}
