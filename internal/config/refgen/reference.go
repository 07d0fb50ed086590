package main

import (
	"fmt"
	"strings"

	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/tools/builtin"
)

const intro = `# Configuration

<!-- Written by internal/config/refgen: change the tables there, then run go generate ./internal/config -->

Everything has a default; a process without any settings runs with the built-in demo model and an
private Postgres.

A setting is taken from the first of these places that has it:

1. the flag of the command,
2. the agent's file, for the settings that an agent has as well,
3. the environment (a variable that is set to nothing counts as not set),
4. the config file: ` + "`turnkeeper.yaml`" + ` in the working directory, or the one that ` + "`--config`" + ` or ` + "`TURNKEEPER_CONFIG`" + ` names,
5. the default.

All settings are checked when the process starts, also those that a higher place overrides. Every
fault is reported at once, with the setting, where it stands and what is accepted, and the exit code
is not 0. Unknown keys are faults.

Durations are written as ` + "`90s`, `2m` or `1h30m`" + `; a bare number is seconds. Relative paths start at the
working directory. The config file is YAML without anchors, aliases and tags, at most 64 KiB.
`

const agentIntro = `
## The agent's file

An agent is a file ` + "`NAME.md`" + ` in the agents folder: settings in YAML between two lines ` + "`---`" + `, then the system
prompt. The name is 1 to 63 of a-z 0-9 _ -, starting with a letter or digit; README.md is not an agent. Unknown keys are faults,
reported with file and line. The file is at most 1 MiB, its settings 64 KiB.
`

const providersIntro = `
## Providers

` + "`providers`" + ` in the config file names OpenAI-compatible endpoints; models are then written ` + "`PROVIDER/MODEL`" + `.
The provider ` + "`demo`" + ` is built in, needs no key, and answers by script: ` + "`demo/script`" + ` by its own, ` + "`demo/NAME`" + ` by
the file ` + "`NAME.demo.yaml`" + ` of the agents folder, as [demo-scripts.md](demo-scripts.md) says.

` + "```yaml" + `
providers:
  local:
    base_url: http://localhost:11434/v1
    profile: ollama
  openrouter:
    api_key_env: OPENROUTER_API_KEY
` + "```" + `

Two providers need no config file. ` + "`OPENAI_API_KEY`" + ` makes the provider ` + "`openai`" + ` at https://api.openai.com/v1,
or at ` + "`OPENAI_BASE_URL`" + `, which makes it without a key as well; ` + "`OPENROUTER_API_KEY`" + ` makes ` + "`openrouter`" + `. These
variables only fill in what the config file leaves open, and such a key is never sent to an address
that the config file gives: name it there by ` + "`api_key_env`" + `.

Keys and headers are never shown: not in logs, errors, records or replies.
`

const modelsIntro = `
## Models

` + "`models`" + ` in the config file says what is known of a model, by ` + "`PROVIDER/MODEL`" + `.

` + "```yaml" + `
models:
  local/qwen3:
    context_window: 40960
` + "```" + `
`

const programsIntro = `
## Programs as tools

` + "`tools`" + ` in the config file makes tools of programs, in any language. An agent has one when its own ` + "`tools`" + `
names it, and every worker of a database should know the tools that its agents list. They are read when a
worker starts.

` + "```yaml" + `
tools:
  count_words:
    description: Counts the words of a text.
    command: [python3, tools/count_words.py]
    arguments:
      type: object
      required: [text]
      additionalProperties: false
      properties:
        text: {type: string}
    effect: none
    timeout: 10s
    env:
      PATH: /usr/bin:/bin
      API_TOKEN: {env: COUNTER_TOKEN}
` + "```" + `

What the program writes to its standard output is the result. With another exit code than 0 the call has
failed, and the model is shown the end of its standard error. Beside ` + "`env`" + ` it has ` + "`TURNKEEPER_AGENT`" + `,
` + "`TURNKEEPER_CONVERSATION`" + `, ` + "`TURNKEEPER_TURN_ID`" + `, ` + "`TURNKEEPER_CALL`" + ` (unique in the turn) and
` + "`TURNKEEPER_IDEMPOTENCY_KEY`" + ` (the same whenever this call is started again).

Everything that a call started ends with it: when the program ends, when its time is up, when the turn is
cancelled, and when the worker is killed. On Linux nothing in the background, in a session of its own or
orphaned escapes that, but what runs under another user or is started by another service. On other systems
only the program's process group is killed, and not when the worker is killed.

A program runs as the worker's user, with the environment above and no open file but its standard three. On
Linux it cannot read the worker's environment or memory: the worker is not dumpable, so in /proc and for debuggers
it is root's alone, and it leaves no core. On other systems a program of the same user may see the worker's
environment. Nowhere is it kept from files that the user can read, the config file and ` + "`file:`" + ` secrets included, or
from other processes of the user: where a program is not trusted, run it as another user (sudo, a container). A
worker of root hides nothing from its tools, and warns of that when it starts. The same holds for MCP servers that are programs.
`

const webhooksIntro = `
## Webhooks

` + "`webhooks`" + ` in the config file names endpoints that replies are pushed to, by workers with the role ` + "`webhooks`" + `. It is
read when a worker starts; every worker of a database should have the same. More in [webhooks.md](webhooks.md).

` + "```yaml" + `
webhooks:
  shop:
    url: https://shop.example/turnkeeper
    secret_env: SHOP_WEBHOOK_SECRET
    agents: [clerk]
` + "```" + `
`

const mcpIntro = `
## MCP servers

` + "`mcp_servers`" + ` in the config file names MCP servers whose tools agents can have. An agent's own ` + "`mcp_servers`" + ` lists
the tools it may call. More in [mcp.md](mcp.md).

` + "```yaml" + `
mcp_servers:
  files:
    command: [npx, -y, "@modelcontextprotocol/server-filesystem", /srv/files]
    env: {PATH: /usr/bin:/bin, HOME: /srv}
    tools:
      read_text_file: {effect: none, timeout: 10s}
  tracker:
    url: https://tracker.example.org/mcp
    headers:
      Authorization: {env: TRACKER_AUTHORIZATION}
    on_change: refuse
` + "```" + `
`

const mcpToolsIntro = `
The keys of ` + "`tools.NAME`" + `:
`

const mcpOAuthIntro = `
The keys of ` + "`oauth`" + `:
`

const mcpIdentityIntro = `
The keys of ` + "`oauth.identity`" + `:
`

const mcpKeyIntro = `
With the grant authorization_code the config file needs ` + "`mcp_login_key: {env: VARIABLE}`" + ` or ` + "`{file: PATH}`" + `: the key
that logins are sealed with in the database, 32 bytes in base64, as ` + "`turnctl mcp key`" + ` makes one. All workers, and whoever
logs in, have the same.
`

const toolsIntro = `
## Built-in tools

An agent has the tools that its ` + "`tools`" + ` names and no others. The effect says what running a call again would
do: ` + "`none`" + ` reads only, ` + "`keyed`" + ` may run again with the same idempotency key, ` + "`once`" + ` is never started twice. A worker
program of your own has these and its own.

`

// reference is the whole document.
func reference() string {
	var b strings.Builder
	b.WriteString(intro)
	group := ""
	for _, s := range config.Settings() {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n## %s\n\n", group)
			row(&b, "Setting, flag, variable", "Type", "Accepted", "Default", "What it does")
			rule(&b, 5)
		}
		row(&b, names(s), unit(s), s.Bounds, code(s.Default), meaning(s))
	}
	b.WriteString(providersIntro)
	mapping(&b, config.ProviderKeys)
	b.WriteString(modelsIntro)
	mapping(&b, config.ModelKeys)
	b.WriteString(programsIntro)
	mapping(&b, config.ToolKeys)
	b.WriteString(webhooksIntro)
	mapping(&b, config.WebhookKeys)
	b.WriteString(mcpIntro)
	mapping(&b, config.MCPServerKeys)
	b.WriteString(mcpToolsIntro)
	mapping(&b, config.MCPToolKeys)
	b.WriteString(mcpOAuthIntro)
	mapping(&b, config.MCPOAuthKeys)
	b.WriteString(mcpIdentityIntro)
	mapping(&b, config.MCPIdentityKeys)
	b.WriteString(mcpKeyIntro)
	b.WriteString(agentIntro)
	header(&b)
	for _, k := range agentdef.Keys() {
		row(&b, code(k.Name), k.Type, k.Bounds, k.Default, k.Doc)
	}
	b.WriteString(toolsIntro)
	row(&b, "Tool", "Effect", "What the model is told of it")
	rule(&b, 3)
	for _, tool := range builtin.All(builtin.Deps{Notes: noNotes{}}) {
		spec := tool.Spec()
		row(&b, code(spec.Name), string(spec.Effect), strings.Join(strings.Fields(spec.Description), " "))
	}
	return b.String()
}

// noNotes lets the tools for notes be described.
type noNotes struct{ builtin.NoteStore }

func mapping(b *strings.Builder, keys []config.MappingKey) {
	header(b)
	for _, k := range keys {
		row(b, code(k.Name), k.Type, k.Bounds, k.Default, k.Doc)
	}
}

func header(b *strings.Builder) {
	b.WriteString("\n")
	row(b, "Key", "Type", "Accepted", "Default", "What it does")
	rule(b, 5)
}

func names(s config.Setting) string {
	parts := []string{code(s.Name), code("--" + s.Flag), code(s.Env)}
	if s.AlsoEnv != "" {
		parts = append(parts, code(s.AlsoEnv))
	}
	return strings.Join(parts, "<br>")
}

func unit(s config.Setting) string {
	if s.Unit == "" {
		return s.Type
	}
	return s.Type + " of " + s.Unit
}

func meaning(s config.Setting) string {
	switch {
	case s.Zero == "":
		return s.Doc
	case s.Type == "text":
		return s.Doc + " Not set: " + s.Zero + "."
	default:
		return s.Doc + " 0: " + s.Zero + "."
	}
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func row(b *strings.Builder, cells ...string) {
	for _, cell := range cells {
		b.WriteString("| " + strings.ReplaceAll(cell, "|", "\\|") + " ")
	}
	b.WriteString("|\n")
}

func rule(b *strings.Builder, columns int) {
	b.WriteString(strings.Repeat("| --- ", columns) + "|\n")
}
