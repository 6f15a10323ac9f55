// A stand-in for VS Code: it activates a bundle in a folder, opens a scenario, and prints as JSON
// what an editor would show. What it does not have is made up: a class for a capital, else a function.
//   node stand_in.js BUNDLE FOLDER FILE COMMAND
const fs = require("node:fs");
const path = require("node:path");
const { fileURLToPath, pathToFileURL } = require("node:url");
const Module = require("node:module");

const [bundle, folder, file, command] = process.argv.slice(2);
const seen = { messages: [], commands: {}, panels: [], diagnostics: [], heard: {} };
const settings = { command, files: "**/*.yaml" };

class Disposable {
  constructor(end = () => {}) { this.dispose = end; }
  static from(...all) { return new Disposable(() => all.forEach((each) => each.dispose())); }
}
class EventEmitter {
  constructor() {
    this.all = new Set();
    this.event = (hear, self) => {
      const bound = self ? hear.bind(self) : hear;
      this.all.add(bound);
      return new Disposable(() => this.all.delete(bound));
    };
  }
  fire(what) { for (const hear of [...this.all]) hear(what); }
  dispose() { this.all.clear(); }
}
class Position { constructor(line, character) { Object.assign(this, { line, character }); } }
class Range {
  constructor(a, b, c, d) {
    Object.assign(this, c === undefined ? { start: a, end: b } : { start: new Position(a, b), end: new Position(c, d) });
  }
}
class Diagnostic { constructor(range, message) { Object.assign(this, { range, message }); } }
class Uri {
  constructor(text) { this.text = text; }
  static file(name) { return new Uri(pathToFileURL(name).href); }
  static parse(text) { return new Uri(text); }
  get scheme() { return this.text.split(":")[0]; }
  get fsPath() { return fileURLToPath(this.text); }
  get path() { return this.fsPath; }
  with() { return this; }
  toString() { return this.text; }
}
class CancellationTokenSource {
  constructor() { this.token = { isCancellationRequested: false, onCancellationRequested: () => new Disposable() }; }
  cancel() {}
  dispose() {}
}

const events = {};
const event = (name) => (events[name] ??= new EventEmitter());
const document = {
  uri: Uri.file(file), fileName: file, languageId: "yaml", version: 1, isUntitled: false, isClosed: false,
  getText: () => fs.readFileSync(file, "utf8"),
};
const root = { uri: Uri.file(folder), name: path.basename(folder), index: 0 };

/** A namespace: `given`, an event for each onDid..., and a function that does nothing for the rest. */
const named = (given) => new Proxy(given, {
  get: (it, key) => {
    if (key in it || typeof key !== "string") return it[key];
    if (/^on(Did|Will)/.test(key)) return event(key).event;
    return () => new Disposable();
  },
});
const known = {
  Disposable, EventEmitter, Position, Range, Diagnostic, Uri, CancellationTokenSource,
  version: "1.91.0", env: named({ language: "en", appName: "stand-in" }),
  ViewColumn: { Beside: -2 }, DiagnosticSeverity: { Error: 0, Warning: 1, Information: 2, Hint: 3 },
  extensions: named({ getExtension: () => undefined, all: [] }),
  l10n: { t: (text) => text },
  commands: named({
    registerCommand: (name, run) => { seen.commands[name] = run; return new Disposable(); },
    executeCommand: async () => {},
  }),
  languages: named({
    match: (_selector, it) => (it.fileName.endsWith(".yaml") ? 10 : 0),
    createDiagnosticCollection: () => named({
      set: (uri, found) => {
        seen.diagnostics.push((found ?? []).map((each) => [each.code?.value ?? each.code, each.range.start.line, each.message]));
        event("diagnosed").fire(found);
      },
    }),
  }),
  window: named({
    activeTextEditor: { document }, visibleTextEditors: [], tabGroups: named({ all: [] }),
    createOutputChannel: () => named({ appendLine: (line) => process.stderr.write(`${line}\n`), append: () => {} }),
    showErrorMessage: async (text) => { seen.messages.push(text); },
    showInformationMessage: async (text) => { seen.messages.push(text); },
    createWebviewPanel: (kind, title) => {
      const shown = event("shown");
      const panel = { title, onDidDispose: event("onDidDispose").event, webview: {
        get html() { return this.text; },
        set html(text) { this.text = text; seen.panels.push([panel.title, text]); shown.fire(text); },
      } };
      return panel;
    },
  }),
  workspace: named({
    workspaceFolders: [root], textDocuments: [document], notebookDocuments: [], isTrusted: true,
    getWorkspaceFolder: () => root,
    getConfiguration: () => ({ get: (name, otherwise) => settings[name] ?? otherwise, has: (name) => name in settings }),
    fs: named({}),
  }),
};
const classes = {};
const vscode = new Proxy(known, {
  get: (it, key) => {
    if (key in it || typeof key !== "string") return it[key];
    return (classes[key] ??= /Kind|Severity|Tag|Action$|Type$|Reason$|Flags$|^Mark/.test(key) && !/^CodeAction(Kind)?$/.test(key)
      ? new Proxy({}, { get: (_, name) => name })
      : class { constructor(...given) { Object.assign(this, given[0] && typeof given[0] === "object" ? given[0] : {}); } static Empty = { append: () => ({}) } });
  },
});
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));

const next = (name) => new Promise((resolve) => { const once = event(name).event((what) => { once.dispose(); resolve(what); }); });
const run = async () => {
  const extension = require(bundle);
  const diagnosed = next("diagnosed");
  await extension.activate({ subscriptions: [] });
  if (!seen.messages.length) await diagnosed;
  const shown = next("shown");
  await seen.commands["scenario.showLanes"]();
  await shown;
  if (!seen.messages.length) {
    const again = next("diagnosed");
    await seen.commands["scenario.restart"]();
    await again;
  }
  await extension.deactivate();
  process.stdout.write(JSON.stringify({ ...seen, commands: Object.keys(seen.commands).sort() }));
};
run().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
