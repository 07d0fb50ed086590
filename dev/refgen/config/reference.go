package main

import (
	"fmt"
	"strings"

	"turnkeeper/agentdef"
	"turnkeeper/internal/config"
	"turnkeeper/tools/builtin"
)

const intro = `# Configuration

<!-- Written by dev/refgen/config from the tables of internal/config and agentdef: change those, then run go generate ./internal/config -->

Every setting has a default; a process without any settings uses the built-in demo model and a
private Postgres.

The value of a setting is the first of:

1. the flag of the command,
2. the agent's file, for settings that an agent has too,
3. the environment variable, if it is not empty,
4. the config file: ` + "`turnkeeper.yaml`" + ` in the working directory, or the file set by ` + "`--config`" + ` or ` + "`TURNKEEPER_CONFIG`" + `,
5. the default.

All settings are checked when the process starts, even overridden ones. All errors are reported
together, each with the setting, its source and what is accepted, and the exit code is not 0. Unknown
keys are errors.

Durations are written as ` + "`90s`, `2m` or `1h30m`" + `; a bare number is seconds. Relative paths start at the
working directory. The config file is YAML without anchors, aliases and tags, at most 64 KiB.
`

const agentIntro = `
## The agent's file

An agent is a file ` + "`NAME.md`" + ` in the agents folder: settings in YAML between two lines ` + "`---`" + `, then the system
prompt. The name is 1 to 63 of a-z 0-9 _ -, starting with a letter or digit; README.md is not an agent. Unknown keys are errors,
reported with file and line. The file is at most 1 MiB, its settings 64 KiB.
`

const providersIntro = `
## Providers

` + "`providers`" + ` in the config file defines OpenAI-compatible endpoints. Models are written ` + "`PROVIDER/MODEL`" + `.
The provider ` + "`demo`" + ` is built in, needs no key, and answers by script: ` + "`demo/script`" + ` is built in too, ` + "`demo/NAME`" + ` is
the file ` + "`NAME.demo.yaml`" + ` in the agents folder; see [demo-scripts.md](demo-scripts.md).

` + "```yaml" + `
providers:
  local:
    base_url: http://localhost:11434/v1
    profile: ollama
  openrouter:
    api_key_env: OPENROUTER_API_KEY
` + "```" + `

Two providers need no config file. ` + "`OPENAI_API_KEY`" + ` or ` + "`OPENAI_BASE_URL`" + ` defines the provider ` + "`openai`" + `, by default at
https://api.openai.com/v1; ` + "`OPENROUTER_API_KEY`" + ` defines ` + "`openrouter`" + `. The config file overrides these
variables, and such a key is never sent to an address set in the config file: there, set
` + "`api_key_env`" + `.

Keys and headers are never shown in logs, errors, records or replies.
`

const modelsIntro = `
## Models

` + "`models`" + ` in the config file describes models, by ` + "`PROVIDER/MODEL`" + `.

` + "```yaml" + `
models:
  local/qwen3:
    context_window: 40960
` + "```" + `
`

const programsIntro = `
## Programs as tools

` + "`tools`" + ` in the config file defines programs, in any language, as tools. An agent can use those that its own
` + "`tools`" + ` lists, and every worker of a database should define the tools that its agents list. They are read
when a worker starts.

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

The program's standard output is the result. If the exit code is not 0, the call fails, and the model is
shown the end of the standard error. In addition to ` + "`env`" + `, the program gets ` + "`TURNKEEPER_AGENT`" + `,
` + "`TURNKEEPER_USER`" + `, ` + "`TURNKEEPER_CONVERSATION`" + `, ` + "`TURNKEEPER_TURN_ID`" + `, ` + "`TURNKEEPER_CALL`" + ` (unique in the turn) and
` + "`TURNKEEPER_IDEMPOTENCY_KEY`" + ` (the same if this call is started again).

All processes that a call started are killed when the program ends, at the timeout, when the turn is
cancelled, and when the worker is killed. On Linux this includes background, orphaned and new-session
processes, but not processes of another user or started by another service. On other systems only the
program's process group is killed, and not when the worker is killed.

A program runs as the worker's user, with the environment above and only its three standard files open. On
Linux it cannot read the worker's environment or memory: the worker is not dumpable, so /proc and debuggers
need root, and it leaves no core dump. On other systems a program of the same user may see the worker's
environment. A program can read every file that the user can read, including the config file and ` + "`file:`" + `
secrets, and can reach other processes of the user: run untrusted programs as another user (sudo, a
container). A worker that runs as root hides nothing from its tools, and logs a warning when it starts. The
same is true of MCP servers with ` + "`command`" + `.
`

const webhooksIntro = `
## Webhooks

` + "`webhooks`" + ` in the config file defines endpoints; workers with the role ` + "`webhooks`" + ` deliver replies to them. It is
read when a worker starts; all workers of a database should have the same. See [webhooks.md](webhooks.md).

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

` + "`mcp_servers`" + ` in the config file defines MCP servers whose tools agents can use. An agent's own ` + "`mcp_servers`" + ` lists
the tools it may call. See [mcp.md](mcp.md).

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
that encrypts logins in the database, 32 bytes in base64. ` + "`turnctl mcp key`" + ` creates one. All workers, and people
who log in, need the same key.
`

const toolsIntro = `
## Built-in tools

An agent can use the tools that its ` + "`tools`" + ` lists and no others. The effect says what repeating a call would
do: ` + "`none`" + ` reads only, ` + "`keyed`" + ` may run again with the same idempotency key, ` + "`once`" + ` is never started twice. Your
own worker program has these tools and those that you add.

`

// reference returns the document.
func reference() string {
	var b strings.Builder
	b.WriteString(intro)
	group := ""
	for _, s := range config.Settings() {
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n## %s\n\n", group)
			row(&b, "Setting, flag, variable", "Type", "Accepted", "Default", "Description")
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
	row(&b, "Tool", "Effect", "Description for the model")
	rule(&b, 3)
	for _, tool := range builtin.Known() {
		spec := tool.Spec()
		row(&b, code(spec.Name), string(spec.Effect), strings.Join(strings.Fields(spec.Description), " "))
	}
	return b.String()
}

func mapping(b *strings.Builder, keys []config.MappingKey) {
	header(b)
	for _, k := range keys {
		row(b, code(k.Name), k.Type, k.Bounds, k.Default, k.Doc)
	}
}

func header(b *strings.Builder) {
	b.WriteString("\n")
	row(b, "Key", "Type", "Accepted", "Default", "Description")
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
	case s.Type == "text", s.Type == "list":
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
