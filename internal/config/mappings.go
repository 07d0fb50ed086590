package config

import "turnkeeper/internal/config/strictyaml"

// A MappingKey is one key of a mapping in the config file.
type MappingKey = strictyaml.Key

// ProviderKeys are the keys of providers.NAME, in the order of the reference.
var ProviderKeys = strictyaml.Reference(Provider{}, [][4]string{
	{"base_url", "an http or https address without user, ? and #", "required, except for openai and openrouter", "Base address of the API."},
	{"api_key_env", "", "none", "The variable that holds the API key."},
	{"api_key_file", "one line, at most 16 KiB", "none", "The file that holds the API key."},
	{"api_key", "", "none", "The API key itself. Not recommended, because config files are easily copied. Set at most one of the three keys."},
	{"headers", "header names mapped to text, or to env: VARIABLE or file: PATH", "none", "Additional headers of each request."},
	{"query", "parameter names mapped to text, or to env: VARIABLE or file: PATH", "none", "Query parameters of each request, such as Azure's `api-version`."},
	{"timeout", "", "0", "Timeout of one model call without streaming (`stream: false`). 0: the setting `model_timeout`."},
	{"profile", "anthropic, azure, deepseek, gemini, generic, llamacpp, mistral, ollama, openai, openrouter, vllm", "the provider's name if it is one of these, else generic", "The kind of server. The keys below override parts of the profile."},
	{"max_tokens_field", "", "by profile", "The field that limits the length of an answer."},
	{"stream", "", "by profile", "Whether answers are streamed."},
	{"stream_usage", "", "by profile", "Whether the server supports `stream_options`."},
	{"tool_choice", "", "by profile", "Whether the server supports `tool_choice`."},
	{"user", "", "by profile", "Whether the server supports `user`."},
	{"separates_reasoning", "", "true for the profiles of hosted services at a public address, else false", "Whether the server separates reasoning from the text of answers, or its models do not reason. Else the text of a model's first answer is not streamed, and that of later ones only if the first had no reasoning before a lone `</think>`."},
	{"empty_content", `"null", string or omit`, "by profile", "How the content of an answer that has only tool calls is sent back."},
	{"tool_call_ids", "", "by profile", "The ids of tool calls that the server accepts: any, exactly nine letters and digits (nine), or letters, digits, _ and - (word)."},
	{"reasoning", "", "by profile", "Whether the server's reasoning is sent back: to the same model (same), never, or always with a field for it (require)."},
	{"extra", "", "none", "Additional fields of the request's body, such as OpenRouter's `provider`."},
})

// ModelKeys are the keys of models.PROVIDER/MODEL.
var ModelKeys = strictyaml.Reference(Model{}, [][4]string{
	{"context_window", " tokens", "the server's value, else that of the built-in table of models, else 32768; 4096 with the profile ollama", "Tokens of a request and its answer together."},
})

// ToolKeys are the keys of tools.NAME. A tool that is not a program may have only the keys in
// switchKeys.
var ToolKeys = strictyaml.Reference(Tool{}, [][4]string{
	{"description", "not empty", "required", "Description of the tool for the model."},
	{"command", "the program, then its arguments", "required", "The command, run without a shell. A program name without a slash is looked up in the worker's PATH."},
	{"arguments", "the JSON Schema of an object", "no arguments", "The arguments of a call. The program reads them as one line of JSON on its standard input."},
	{"effect", "", "once", "What repeating a call would do. A `keyed` program must pass on `TURNKEEPER_IDEMPOTENCY_KEY`."},
	{"timeout", "", "0", "Timeout of one call. 0: the turn's `tool_timeout`."},
	{"freshness", "", "the agent's `freshness_window` for a tool with an effect, else 0", "In turns of a schedule, a call is skipped if an equal one succeeded within this time. 0: never skipped."},
	{"repeat", "", "allow for a tool of effect none, else guard", "A call equal to the one directly before it: allow runs it again; guard answers it with the earlier result if that call succeeded."},
	{"max_result_chars", " characters", "the agent's `max_tool_result_chars`", "Maximum length of the part of a result that the model is shown at once."},
	{"detached", "", "false", "Whether a call runs in a separate job while its turn waits. Requires `timeout`, which may be longer than a turn."},
	{"background", "", "true for effect none, else false", "Whether a call that takes longer than `async_timeout` continues in the background. Later calls with an effect in the same answer still wait for it."},
	{"dir", "a path", "the working directory", "Working directory of the program."},
	{"env", "variable names mapped to text, or to env: VARIABLE or file: PATH", "none", "Environment of the program. It gets no other variables except those of the call."},
	{"max_output", " bytes", "10000000", "Maximum size of the stored output. The rest is discarded, with a note for the model."},
	{"approve", "always, never or a rule in CEL", "none", "The calls that a person must approve before they run. An agent's entry for the tool replaces it. See docs/asks.md."},
	{"labels", "untrusted, private", "none", "Labels of the results: untrusted content may contain instructions, and private content must not be sent out. See docs/asks.md."},
	{"sinks", "changes, sends", "none", "What calls can do with labelled content: change something that matters, or send it out. Such a call asks a person first."},
	{"destination", "names of arguments", "none", "The arguments that hold the destinations of a call, such as `[to, cc, bcc]`: each a string or a list of strings."},
	{"destinations", "patterns such as *@example.com or https://example.com/**", "none", "Destinations to which a call may send private content without asking. `*` matches letters, digits, `.`, `_`, `+` and `-`. See docs/asks.md for how destinations are compared."},
	{"media_type", "not empty", "text/plain", "Media type of the output. Output that is not text is stored as binary."},
})

// WebhookKeys are the keys of webhooks.NAME.
var WebhookKeys = strictyaml.Reference(webhookEntry{}, [][4]string{
	{"url", "an http or https address without user and #", "required: one of url, url_env and url_file", "The address that replies are posted to. Only its scheme, host and port are ever displayed."},
	{"url_env", "", "none", "The variable that holds the address, if it is secret."},
	{"url_file", "one line, at most 16 KiB", "none", "The file that holds the address."},
	{"secret_env", "", "required: secret_env or secret_file", "The variable that holds the signing secret: `whsec_` and 24 to 64 bytes in base64. `turnctl webhooks secret` creates one."},
	{"secret_file", "one line, at most 16 KiB", "none", "The file that holds the signing secret."},
	{"old_secret_env", "", "none", "The variable that holds the previous secret during a rotation: requests carry a signature for each secret."},
	{"old_secret_file", "one line, at most 16 KiB", "none", "The file that holds the previous secret."},
	{"agents", "names of agents", "all agents", "The agents whose replies are delivered."},
	{"sub_agents", "", "false", "Whether replies of sub-agents to other agents are delivered too."},
	{"asks", "", "false", "Whether asks are delivered when they are opened, including those of sub-agents."},
	{"allow_private", "", "false", "Whether the address may be on this machine or in a private network. Otherwise connections to addresses that are not public are refused."},
	{"timeout", "", "15s", "Timeout of one attempt, from the DNS lookup to the response status."},
	{"concurrency", "", "4", "Maximum number of concurrent attempts of all workers together."},
	{"max_attempts", "", "20", "Number of attempts after which a delivery is given up."},
	{"max_age", "", "72h", "Time since the first attempt after which a delivery is given up."},
})

// MCPServerKeys are the keys of mcp_servers.NAME.
var MCPServerKeys = strictyaml.Reference(MCPServer{}, [][4]string{
	{"command", "the program, then its arguments", "required: `command` or `url`", "The command of a local server, which is run without a shell and speaks over standard input and output. A program name without a slash is looked up in the worker's PATH."},
	{"dir", "a path", "the working directory", "Working directory of the program."},
	{"env", "variable names mapped to text, or to env: VARIABLE or file: PATH", "none", "Environment of the program. It gets no other variables, not even PATH and HOME."},
	{"url", "an http or https address without user and #", "required: `command` or `url`", "The address of a server with streamable HTTP. It may be a private address. Redirects are not followed."},
	{"headers", "header names mapped to text, or to env: VARIABLE or file: PATH", "none", "Additional headers of each request."},
	{"oauth", "the keys `oauth.*`", "none", "How to get OAuth tokens for the server. Requires `url`."},
	{"session", "", "shared", "One session for all agents (shared), or one for each lane and user (lane), for example if each needs its own browser."},
	{"connect_timeout", "", "30s", "Timeout of starting a session. 0: the default."},
	{"idle_timeout", "", "10m", "Time without a call after which a lane's session ends. 0: when the worker stops."},
	{"protocol", "", "the newest version that both support", "The protocol version to request, for a server that fails if a newer one is requested."},
	{"effect", "", "once", "What repeating a call would do, for tools without an own `effect` in `tools`. A server with `keyed` tools reads the key in `_meta`."},
	{"trust_hints", "", "false", "Whether to use the server's hints where neither `effect` nor `tools` sets the effect: readOnlyHint means none, idempotentHint means keyed."},
	{"timeout", "", "0", "Timeout of one call. 0: the turn's `tool_timeout`."},
	{"background", "", "true for effect none, else false", "Whether a call that takes longer than `async_timeout` continues in the background. Later calls with an effect in the same answer still wait for it."},
	{"approve", "always, never or a rule in CEL", "none", "As `tools.NAME.approve`, for tools without their own `approve` in `tools`."},
	{"labels", "untrusted, private", "none", "Labels of the results and of the tools' definitions: untrusted content may contain instructions, and private content must not be sent out. See docs/asks.md."},
	{"sinks", "changes, sends", "none", "What calls can do with labelled content: change something that matters, or send it out. Such a call asks a person first."},
	{"destination", "names of arguments", "none", "The arguments that hold the destinations of a call, such as `[to, cc, bcc]`: each a string or a list of strings."},
	{"destinations", "patterns such as *@example.com or https://example.com/**", "none", "Destinations to which a call may send private content without asking. `*` matches letters, digits, `.`, `_`, `+` and `-`. See docs/asks.md for how destinations are compared."},
	{"tools", "the server's tool names, each with keys `tools.NAME.*`", "none", "Settings of single tools."},
	{"on_change", "", "report", "If a tool's description or schema differs from the pinned one: report it and use the tool, or refuse the tool until `turnctl mcp pin`."},
	{"elicitation", "", "decline", "What to do with a server's request for input during a call: decline it, answer it with its default values, or ask a person. Only servers of protocol 2026-07-28 can wait for a person; requests of older ones are declined. With ask, no call continues in the background."},
	{"sampling", "", "decline", "What to do with a server's request for a model's answer during a call: decline it, or allow it with the agent's model, counted in the turn's usage."},
	{"max_sampling_calls", "", "4", "Maximum number of sampling requests in one call."},
	{"max_sampling_tokens", "", "8000", "Maximum number of tokens of all sampling requests and answers in one call."},
	{"roots", "paths of folders", "none", "Folders announced to the server as roots."},
})

// MCPToolKeys are the keys of mcp_servers.NAME.tools.TOOL.
var MCPToolKeys = strictyaml.Reference(MCPToolSettings{}, [][4]string{
	{"effect", "", "the server's", "What repeating a call would do."},
	{"timeout", "", "the server's", "Timeout of one call. 0: the server's."},
	{"freshness", "", "the agent's `freshness_window` for a tool with an effect, else 0", "As `tools.NAME.freshness`."},
	{"repeat", "", "allow for a tool of effect none, else guard", "As `tools.NAME.repeat`."},
	{"max_result_chars", " characters", "the agent's `max_tool_result_chars`", "As `tools.NAME.max_result_chars`."},
	{"background", "", "the server's", "Whether a call may continue in the background."},
	{"approve", "always, never or a rule in CEL", "the server's", "As `tools.NAME.approve`."},
	{"labels", "untrusted, private", "the server's", "As `tools.NAME.labels`."},
	{"sinks", "changes, sends", "the server's", "As `tools.NAME.sinks`."},
	{"destination", "names of arguments", "the server's", "As `tools.NAME.destination`."},
	{"destinations", "patterns such as *@example.com or https://example.com/**", "the server's", "As `tools.NAME.destinations`."},
})

// MCPOAuthKeys are the keys of mcp_servers.NAME.oauth.
var MCPOAuthKeys = strictyaml.Reference(MCPOAuth{}, [][4]string{
	{"grant", "", "required", "How to get tokens: with the worker's own credentials; with the login of a person, who runs `turnctl mcp login NAME` once; or through an enterprise identity provider."},
	{"client_id", "", "none; required except with authorization_code", "The client id at the authorization server. With authorization_code and no client_id, the worker registers itself."},
	{"client_secret", "env: VARIABLE or file: PATH", "none", "The client secret."},
	{"private_key", "env: VARIABLE or file: PATH, which hold a key in PEM: RSA, Ed25519, or EC on P-256, P-384 or P-521", "none", "A key to sign assertions with, instead of a secret (private_key_jwt). Not with authorization_code."},
	{"key_id", "", "none", "The id of that key at the authorization server (kid)."},
	{"client_metadata_url", "an https address with a path", "none", "An address that serves the client's metadata. With authorization_code it is used as the client id, if the authorization server supports that."},
	{"issuer", "an https address", "the one that the server names", "The only authorization server to use. It may have a private address. Without this key, credentials are sent to the authorization server that the MCP server names."},
	{"token_endpoint", "an https address", "discovered", "The token endpoint, to skip discovery. Only with client_credentials."},
	{"scopes", "", "the scopes that the server names", "The scopes to request at first."},
	{"redirect_port", "", "0", "The local port that the browser is redirected to after a login, for authorization servers that require a registered one. 0: any free port."},
	{"identity", "the keys `oauth.identity.*`", "required with enterprise", "The worker's credentials at the identity provider."},
})

// MCPIdentityKeys are the keys of mcp_servers.NAME.oauth.identity.
var MCPIdentityKeys = strictyaml.Reference(MCPIdentity{}, [][4]string{
	{"token_endpoint", "an https address", "required", "The endpoint of the identity provider that exchanges tokens."},
	{"client_id", "", "required", "The client id at the identity provider."},
	{"client_secret", "env: VARIABLE or file: PATH", "none", "The client secret at the identity provider."},
	{"token", "env: VARIABLE or file: PATH", "required", "The ID token. A file is read again for each use, so it can be renewed."},
})
