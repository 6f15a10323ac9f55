// The language server of `scenario lsp`, and the lanes of a scenario in a view next to its text.

import { execFile } from "node:child_process";
import * as path from "node:path";
import * as vscode from "vscode";
import { LanguageClient } from "vscode-languageclient/node";

/** Milliseconds that a picture may take: the analysis has a bound of its own below this. */
const PATIENCE_MS = 20_000;
/** Bytes of a picture. */
const LARGEST = 16 * 1024 * 1024;

let client: LanguageClient | undefined;
let lanes: Lanes | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    vscode.commands.registerCommand("scenario.restart", restart),
    vscode.commands.registerCommand("scenario.showLanes", showLanes),
    vscode.workspace.onDidSaveTextDocument((document) => lanes?.follow(document)),
    vscode.window.onDidChangeActiveTextEditor((editor) => lanes?.follow(editor?.document)),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("scenario")) void restart();
    }),
  );
  await restart();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

async function restart(): Promise<void> {
  await client?.stop();
  const options = { command: command(), args: ["lsp"], options: { cwd: folder() } };
  client = new LanguageClient("scenario", "Scenario", options, {
    documentSelector: [{ scheme: "file", pattern: pattern() }],
  });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    void vscode.window.showErrorMessage(
      /ENOENT/.test(String(error))
        ? `\`${command()}\` is not found: set "scenario.command" to its path, such as .venv/bin/scenario`
        : `\`${command()} lsp\` does not start: ${error}; it needs \`pip install pygls\` next to torch-scenarios`,
    );
  }
}

function setting(name: string): string {
  return vscode.workspace.getConfiguration("scenario").get<string>(name) ?? "";
}

function pattern(): string {
  return setting("files");
}

/** The folder of the workspace, from which relative paths are read. */
function folder(document?: vscode.TextDocument): string | undefined {
  const own = document && vscode.workspace.getWorkspaceFolder(document.uri);
  return (own ?? vscode.workspace.workspaceFolders?.[0])?.uri.fsPath;
}

/** The command as it is, or as a path in the workspace where it has a slash. */
function command(): string {
  const named = setting("command") || "scenario";
  const base = folder();
  return /[\\/]/.test(named) && base ? path.resolve(base, named) : named;
}

function isScenario(document: vscode.TextDocument): boolean {
  return vscode.languages.match({ scheme: "file", pattern: pattern() }, document) > 0;
}

async function showLanes(): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (!document || !isScenario(document)) {
    void vscode.window.showInformationMessage(
      `This file is not a scenario; "scenario.files" says which are: ${pattern()}`,
    );
    return;
  }
  lanes ??= new Lanes(() => (lanes = undefined));
  await lanes.follow(document);
}

/** The view: the picture of the scenario that was saved or looked at last. */
class Lanes {
  private readonly panel = vscode.window.createWebviewPanel(
    "scenario.lanes",
    "Lanes",
    { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true },
    { enableScripts: false, localResourceRoots: [] },
  );
  /** Counts pictures that were asked for: an older one that comes later is not shown. */
  private asked = 0;

  constructor(forget: () => void) {
    this.panel.onDidDispose(forget);
  }

  async follow(document: vscode.TextDocument | undefined): Promise<void> {
    if (!document || !isScenario(document)) return;
    const mine = ++this.asked;
    const picture = await draw(document);
    if (mine !== this.asked) return;
    this.panel.title = `Lanes of ${path.basename(document.fileName)}`;
    this.panel.webview.html = page(picture);
  }
}

/** Return the picture of a saved file, or the words of the command that draws none. */
function draw(document: vscode.TextDocument): Promise<string> {
  const words = ["show", "--svg", "-", document.fileName];
  const options = { cwd: folder(document), timeout: PATIENCE_MS, maxBuffer: LARGEST };
  return new Promise((resolve) => {
    execFile(command(), words, options, (error, picture, said) => {
      const start = picture.indexOf("<svg");
      if (start >= 0) resolve(picture.slice(start));
      else resolve(`<pre>${escape(said || picture || String(error ?? "nothing was drawn"))}</pre>`);
    });
  });
}

function escape(text: string): string {
  return text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function page(content: string): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>body{padding:1rem;overflow:auto}svg{max-width:none}pre{white-space:pre-wrap}
body.vscode-dark,body.vscode-high-contrast{color-scheme:dark}body.vscode-light{color-scheme:light}
</style></head><body>${content}</body></html>`;
}
