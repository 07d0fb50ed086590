package config

// A MappingKey is one key of a provider or a model in the config file.
type MappingKey struct {
	Name    string
	Type    string
	Bounds  string // what is accepted; empty: anything of its type
	Default string // what its absence means
	Doc     string
}

// ProviderKeys are the keys of providers.NAME, in the order of the reference.
var ProviderKeys = []MappingKey{
	{"base_url", "text", "an http or https address without user, ? and #", "must be given; openai and openrouter have their own", "Where the endpoint's API begins."},
	{"api_key_env", "text", "", "none", "The variable that holds the API key."},
	{"api_key_file", "text", "one line, at most 16 KiB", "none", "The file that holds the API key."},
	{"api_key", "text", "", "none", "The API key itself. Better not: the file is easily copied. Give one of the three, or none."},
	{"headers", "mapping", "names of headers to texts, or to env: VARIABLE or file: PATH", "none", "More headers of each request."},
	{"query", "mapping", "names of parameters to texts, or to env: VARIABLE or file: PATH", "none", "Parameters of each request's address, such as Azure's `api-version`."},
	{"timeout", "duration", "0 to 24h", "0", "Time for one model call where answers do not stream (`stream: false`). 0: the setting `model_timeout`."},
	{"profile", "text", "anthropic, azure, deepseek, gemini, generic, llamacpp, mistral, ollama, openai, openrouter, vllm", "the provider's name if it is one of these, else generic", "What kind of server it is. The keys below change single habits of it."},
	{"max_tokens_field", "text", "max_tokens or max_completion_tokens", "by profile", "The field that bounds the answer's length."},
	{"stream", "true or false", "", "by profile", "Whether answers are asked for piece by piece."},
	{"stream_usage", "true or false", "", "by profile", "Whether the server knows `stream_options`."},
	{"tool_choice", "true or false", "", "by profile", "Whether the server knows `tool_choice`."},
	{"user", "true or false", "", "by profile", "Whether the server knows `user`."},
	{"empty_content", "text", `"null", string or omit`, "by profile", "How an answer of nothing but tool calls is sent back."},
	{"tool_call_ids", "text", "any, nine or word", "by profile", "Which ids of tool calls the server takes: any, exactly nine letters and digits, or letters, digits, _ and -."},
	{"reasoning", "text", "same, never or require", "by profile", "Whether the server gets its own reasoning back: as it came, never, or always a field for it."},
	{"extra", "mapping", "", "none", "More fields of the request's body, such as OpenRouter's `provider`."},
}

// ModelKeys are the keys of models.PROVIDER/MODEL.
var ModelKeys = []MappingKey{
	{"context_window", "whole number", "1024 to 100000000 tokens", "what the server tells or the table of known models has, else 32768; 4096 with the profile ollama", "Tokens that the model takes, question and answer together."},
}

// ToolKeys are the keys of tools.NAME. A tool that is there without the config file
// may have the keys of switchKeys.
var ToolKeys = []MappingKey{
	{"description", "text", "not empty", "must be given", "What the tool does, for the model."},
	{"command", "list of text", "the program, then its arguments", "must be given", "What is run, without a shell. A program without a slash is looked up in the worker's PATH."},
	{"arguments", "mapping", "the JSON Schema of an object", "no arguments", "What the model may pass. The program gets it as JSON, on one line, on its standard input."},
	{"effect", "text", "none, keyed or once", "once", "What running a call again would do. A `keyed` program passes on `TURNKEEPER_IDEMPOTENCY_KEY`."},
	{"timeout", "duration", "0 to 24h", "0", "Time for one call. 0: the `tool_timeout` of the turn."},
	{"freshness", "duration", "0 to 720h", "the agent's `freshness_window` for a tool with an effect; else 0", "In turns of a schedule, a call that equals one that succeeded this recently is not run. 0: it is run."},
	{"repeat", "text", "allow or guard", "allow for a tool of effect none, else guard", "Whether a call that equals the one directly before it runs again (allow), or is answered with the result of that one, where it succeeded (guard)."},
	{"max_result_chars", "whole number", "1 to 1000000 characters", "the agent's `max_tool_result_chars`", "How much of a result the model is shown at once."},
	{"detached", "true or false", "", "false", "Whether a call runs in a job of its own, apart from its turn. It needs a `timeout`, which may be longer than any turn."},
	{"background", "true or false", "", "true for effect none, else false", "Whether a call that takes longer than `async_timeout` goes on in the background. What has an effect and comes after it in the same answer waits for it all the same."},
	{"dir", "text", "a path", "the working directory", "The folder that the program runs in."},
	{"env", "mapping", "names of variables to texts, or to env: VARIABLE or file: PATH", "none", "The program's environment. It gets no other variable but those of the call."},
	{"max_output", "whole number", "1 to 10000000 bytes", "10000000", "How much of the output is kept. The rest is read and dropped, and the model is told so."},
	{"media_type", "text", "not empty", "text/plain", "What the output is. What is not text is kept as binary content."},
}

// WebhookKeys are the keys of webhooks.NAME.
var WebhookKeys = []MappingKey{
	{"url", "text", "an http or https address without user and #", "must be given, this or one of the next two", "Where replies are posted. Only scheme, host and port of it are ever shown."},
	{"url_env", "text", "", "none", "The variable that holds the address, where it is a secret."},
	{"url_file", "text", "one line, at most 16 KiB", "none", "The file that holds the address."},
	{"secret_env", "text", "", "must be given, this or secret_file", "The variable that holds the secret to sign with: `whsec_` and 24 to 64 bytes in base64, as `turnctl webhooks secret` makes one."},
	{"secret_file", "text", "one line, at most 16 KiB", "none", "The file that holds the secret."},
	{"old_secret_env", "text", "", "none", "The variable of the secret before, while receivers may still check with it: requests carry a signature of each."},
	{"old_secret_file", "text", "one line, at most 16 KiB", "none", "The file of the secret before."},
	{"agents", "list of text", "names of agents", "all agents", "Whose replies are delivered."},
	{"sub_agents", "true or false", "", "false", "Whether replies that agents write for other agents are delivered as well."},
	{"allow_private", "true or false", "", "false", "Whether the address may be on this machine or in a private network. Without it only public addresses are connected to."},
	{"timeout", "duration", "1s to 5m", "15s", "Time for one attempt, from the look-up of the name to the status."},
	{"concurrency", "whole number", "1 to 100", "4", "Attempts at the same time, of all workers together."},
	{"max_attempts", "whole number", "1 to 100", "20", "Attempts after which a delivery is given up."},
	{"max_age", "duration", "1m to 30 days", "72h", "Time since the first attempt after which a delivery is given up."},
}

// MCPServerKeys are the keys of mcp_servers.NAME.
var MCPServerKeys = []MappingKey{
	{"command", "list of text", "the program, then its arguments", "this or `url` must be given", "A server that is run as a program, and spoken to over its standard input and output. No shell reads it; a program without a slash is looked up in the worker's PATH."},
	{"dir", "text", "a path", "the working directory", "The folder that the program runs in."},
	{"env", "mapping", "names of variables to texts, or to env: VARIABLE or file: PATH", "none", "The program's environment. It gets no other variable, PATH and HOME included."},
	{"url", "text", "an http or https address without user and #", "this or `command` must be given", "A server that is reached over streamable HTTP. The address may be a private one: it is yours. It is not followed to another."},
	{"headers", "mapping", "names of headers to texts, or to env: VARIABLE or file: PATH", "none", "More headers of each request."},
	{"oauth", "mapping", "the keys `oauth.*`", "none", "How tokens for the server are had. Only with `url`."},
	{"session", "text", "shared or lane", "shared", "One session for all agents, or one for each lane: a browser that no two should share, say."},
	{"connect_timeout", "duration", "0 to 24h", "30s", "Time in which the server must have answered when a session begins. 0: the default."},
	{"idle_timeout", "duration", "0 to 24h", "10m", "After how long without a call the session of a lane ends. 0: with the worker."},
	{"protocol", "text", "2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 or 2026-07-28", "the newest that both know", "The protocol version that is asked for, for a server that does not take being asked for a newer one."},
	{"effect", "text", "none, keyed or once", "once", "What running a call again would do, for tools of which `tools` does not say it. A server that takes calls as `keyed` knows them by `_meta`."},
	{"trust_hints", "true or false", "", "false", "Whether the server's hints are believed where neither `effect` nor `tools` says anything: readOnlyHint as none, idempotentHint as keyed."},
	{"timeout", "duration", "0 to 24h", "0", "Time for one call. 0: the `tool_timeout` of the turn."},
	{"background", "true or false", "", "true for effect none, else false", "Whether a call that takes longer than `async_timeout` goes on in the background. What has an effect and comes after it in the same answer waits for it all the same."},
	{"tools", "mapping", "the server's names of tools, each with keys `tools.NAME.*`", "none", "What differs for single tools."},
	{"on_change", "text", "report or refuse", "report", "What happens when a tool's description or schema is no longer the pinned one: it is reported and used, or reported and refused, until `turnctl mcp pin`."},
	{"elicitation", "text", "decline or defaults", "decline", "What a server is answered that asks for input in the middle of a call: that it is declined, or the defaults that it gave."},
	{"sampling", "text", "decline or allow", "decline", "What a server is answered that asks for an answer of a model in the middle of a call: that it is declined, or what a model of the agent's answers, at the expense of the turn."},
	{"max_sampling_calls", "whole number", "1 to 100", "4", "How often a server may ask a model in one call."},
	{"max_sampling_tokens", "whole number", "1 to 10000000", "8000", "Tokens that all questions and answers of one call may take together."},
	{"roots", "list of text", "paths of folders", "none", "Folders that the server is told of as roots."},
}

// MCPToolKeys are the keys of mcp_servers.NAME.tools.TOOL.
var MCPToolKeys = []MappingKey{
	{"effect", "text", "none, keyed or once", "the server's", "What running a call again would do."},
	{"timeout", "duration", "0 to 24h", "the server's", "Time for one call. 0: the server's."},
	{"freshness", "duration", "0 to 720h", "the agent's `freshness_window` for a tool with an effect; else 0", "As `tools.NAME.freshness`."},
	{"repeat", "text", "allow or guard", "allow for a tool of effect none, else guard", "As `tools.NAME.repeat`."},
	{"max_result_chars", "whole number", "1 to 1000000 characters", "the agent's `max_tool_result_chars`", "As `tools.NAME.max_result_chars`."},
	{"background", "true or false", "", "the server's", "Whether a call may go on in the background."},
}

// MCPOAuthKeys are the keys of mcp_servers.NAME.oauth.
var MCPOAuthKeys = []MappingKey{
	{"grant", "text", "client_credentials, authorization_code or enterprise", "must be given", "How tokens are had: by what the worker is known by itself; by a person, who logs in once with `turnctl mcp login NAME`; or by an identity provider that vouches for the worker."},
	{"client_id", "text", "", "none; must be given but with authorization_code", "What the worker is called at the authorization server. With authorization_code and without it the worker registers itself."},
	{"client_secret", "mapping", "env: VARIABLE or file: PATH", "none", "The secret that proves it."},
	{"private_key", "mapping", "env: VARIABLE or file: PATH, which hold a key in PEM: RSA, Ed25519, or EC on P-256, P-384 or P-521", "none", "A key that proves it in place of a secret, by what it signs (private_key_jwt). Not with authorization_code."},
	{"key_id", "text", "", "none", "What the authorization server calls that key (kid)."},
	{"client_metadata_url", "text", "an https address with a path", "none", "An address at which you describe the client. With authorization_code it is the client's id, where the authorization server takes such."},
	{"issuer", "text", "an https address", "whichever the server names", "The only authorization server that is talked to. It may have a private address. Without it a secret goes to the one that the server names."},
	{"token_endpoint", "text", "an https address", "is looked up", "Where tokens are asked for, if nothing is to be looked up. Only with client_credentials."},
	{"scopes", "list of text", "", "what the server asks for", "What is asked for to begin with."},
	{"redirect_port", "whole number", "0 to 65535", "0", "The port of this machine that the browser comes back to after a login, for authorization servers that want to know it before. 0: any that is free."},
	{"identity", "mapping", "the keys `oauth.identity.*`", "must be given with enterprise", "What the identity provider knows the worker by."},
}

// MCPIdentityKeys are the keys of mcp_servers.NAME.oauth.identity.
var MCPIdentityKeys = []MappingKey{
	{"token_endpoint", "text", "an https address", "must be given", "Where the identity provider exchanges tokens."},
	{"client_id", "text", "", "must be given", "What the worker is called there."},
	{"client_secret", "mapping", "env: VARIABLE or file: PATH", "none", "The secret that proves it there."},
	{"token", "mapping", "env: VARIABLE or file: PATH", "must be given", "The ID token. A file is read anew each time, for whoever renews it."},
}

func keyNames(keys []MappingKey) []string {
	var names []string
	for _, key := range keys {
		names = append(names, key.Name)
	}
	return names
}
