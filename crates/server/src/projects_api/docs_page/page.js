// Shows the OpenAPI document: operations by tag, then schemas. All texts are set as text, never as HTML.

const METHODS = ["get", "post", "put", "patch", "delete"];

function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const part of [content].flat()) if (part !== undefined) made.append(part);
  return made;
}

// The type of a schema in words, with links to named schemas.
function typeOf(schema) {
  if (!schema) return ["any"];
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [element("a", name, { href: `#schema-${name}` })];
  }
  const choices = schema.oneOf || schema.anyOf || schema.allOf;
  if (choices) return choices.flatMap((choice, at) => (at ? [" or ", ...typeOf(choice)] : typeOf(choice)));
  if (schema.enum) return [schema.enum.map((value) => JSON.stringify(value)).join(", ")];
  if (schema.items) return ["list of ", ...typeOf(schema.items)];
  return [[schema.type || "any"].flat().join(" or ")];
}

function table(head, rows) {
  const header = element("tr", head.map((text) => element("th", text)));
  const body = rows.map((row) => element("tr", row.map((cell) => element("td", cell))));
  return element("table", [header, ...body]);
}

function bodies(content) {
  return Object.entries(content || {}).flatMap(([type, media]) => [element("code", type), " ", ...typeOf(media.schema), " "]);
}

function operation(path, method, described) {
  const title = [element("span", method.toUpperCase(), { class: "method" }), element("code", path)];
  const parts = [element("summary", [...title, ` ${described.summary || ""}`])];
  if (described.description) parts.push(element("p", described.description));
  const parameters = described.parameters || [];
  if (parameters.length) {
    const row = (given) => [element("code", given.name), given.in, typeOf(given.schema), given.description || ""];
    parts.push(table(["parameter", "in", "type", "meaning"], parameters.map(row)));
  }
  if (described.requestBody) parts.push(element("p", ["Body: ", ...bodies(described.requestBody.content)]));
  const answers = Object.entries(described.responses || {});
  parts.push(table(["status", "meaning", "body"], answers.map(([status, answer]) => [status, answer.description || "", bodies(answer.content)])));
  return element("details", parts);
}

function schema(name, described) {
  const parts = [element("summary", element("code", name))];
  if (described.description) parts.push(element("p", described.description));
  const members = Object.entries(described.properties || {});
  const row = ([member, type]) => [element("code", member), typeOf(type), type.description || ""];
  parts.push(members.length ? table(["member", "type", "meaning"], members.map(row)) : element("p", typeOf(described)));
  return element("details", parts, { id: `schema-${name}` });
}

async function show() {
  const answer = await fetch("/api/openapi.json");
  const api = await answer.json();
  document.getElementById("about").replaceChildren(api.info.description || "", " ", element("a", "OpenAPI document", { href: "/api/openapi.json" }));
  const byTag = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((known) => methods[known])) {
      const tag = (methods[method].tags || [""])[0];
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push(operation(path, method, methods[method]));
    }
  }
  const operations = document.getElementById("operations");
  for (const [tag, list] of byTag) operations.append(element("h2", tag), ...list);
  const schemas = document.getElementById("schemas");
  for (const [name, described] of Object.entries(api.components.schemas)) schemas.append(schema(name, described));
}

// A link to a schema opens it.
addEventListener("hashchange", () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target) target.open = true;
});

show().catch((error) => document.getElementById("about").replaceChildren(`Cannot read the document: ${error}`));
