package config

import "turnkeeper/internal/config/strictyaml"

// A MappingKey is one key of a mapping in the config file.
type MappingKey = strictyaml.Key

// ProviderKeys are the keys of providers.NAME, in the order of the reference.
var ProviderKeys = strictyaml.Reference(Provider{}, [][4]string{
	{"base_url", "an http or https address without user, ? and #", "must be given; openai and openrouter have their own", "Where the endpoint's API begins."},
	{"api_key_env", "", "none", "The variable that holds the API key."},
	{"api_key_file", "one line, at most 16 KiB", "none", "The file that holds the API key."},
	{"api_key", "", "none", "The API key itself. Better not: the file is easily copied. Give one of the three, or none."},
	{"headers", "names of headers to texts, or to env: VARIABLE or file: PATH", "none", "More headers of each request."},
	{"query", "names of parameters to texts, or to env: VARIABLE or file: PATH", "none", "Parameters of each request's address, such as Azure's `api-version`."},
	{"timeout", "", "0", "Time for one model call where answers do not stream (`stream: false`). 0: the setting `model_timeout`."},
	{"profile", "anthropic, azure, deepseek, gemini, generic, llamacpp, mistral, ollama, openai, openrouter, vllm", "the provider's name if it is one of these, else generic", "What kind of server it is. The keys below change single habits of it."},
	{"max_tokens_field", "", "by profile", "The field that bounds the answer's length."},
	{"stream", "", "by profile", "Whether answers are asked for piece by piece."},
	{"stream_usage", "", "by profile", "Whether the server knows `stream_options`."},
	{"tool_choice", "", "by profile", "Whether the server knows `tool_choice`."},
	{"user", "", "by profile", "Whether the server knows `user`."},
	{"empty_content", `"null", string or omit`, "by profile", "How an answer of nothing but tool calls is sent back."},
	{"tool_call_ids", "", "by profile", "Which ids of tool calls the server takes: any, exactly nine letters and digits, or letters, digits, _ and -."},
	{"reasoning", "", "by profile", "Whether the server gets its own reasoning back: as it came, never, or always a field for it."},
	{"extra", "", "none", "More fields of the request's body, such as OpenRouter's `provider`."},
})

// ModelKeys are the keys of models.PROVIDER/MODEL.
var ModelKeys = strictyaml.Reference(Model{}, [][4]string{
	{"context_window", " tokens", "what the server tells or the table of known models has, else 32768; 4096 with the profile ollama", "Tokens that the model takes, question and answer together."},
})

// ToolKeys are the keys of tools.NAME. A tool that is there without the config file
// may have the keys of switchKeys.
var ToolKeys = strictyaml.Reference(Tool{}, [][4]string{
	{"description", "not empty", "must be given", "What the tool does, for the model."},
	{"command", "the program, then its arguments", "must be given", "What is run, without a shell. A program without a slash is looked up in the worker's PATH."},
	{"arguments", "the JSON Schema of an object", "no arguments", "What the model may pass. The program gets it as JSON, on one line, on its standard input."},
	{"effect", "", "once", "What running a call again would do. A `keyed` program passes on `TURNKEEPER_IDEMPOTENCY_KEY`."},
	{"timeout", "", "0", "Time for one call. 0: the `tool_timeout` of the turn."},
	{"freshness", "", "the agent's `freshness_window` for a tool with an effect; else 0", "In turns of a schedule, a call that equals one that succeeded this recently is not run. 0: it is run."},
	{"repeat", "", "allow for a tool of effect none, else guard", "Whether a call that equals the one directly before it runs again (allow), or is answered with the result of that one, where it succeeded (guard)."},
	{"max_result_chars", " characters", "the agent's `max_tool_result_chars`", "How much of a result the model is shown at once."},
	{"detached", "", "false", "Whether a call runs in a job of its own, apart from its turn. It needs a `timeout`, which may be longer than any turn."},
	{"background", "", "true for effect none, else false", "Whether a call that takes longer than `async_timeout` goes on in the background. What has an effect and comes after it in the same answer waits for it all the same."},
	{"dir", "a path", "the working directory", "The folder that the program runs in."},
	{"env", "names of variables to texts, or to env: VARIABLE or file: PATH", "none", "The program's environment. It gets no other variable but those of the call."},
	{"max_output", " bytes", "10000000", "How much of the output is kept. The rest is read and dropped, and the model is told so."},
	{"media_type", "not empty", "text/plain", "What the output is. What is not text is kept as binary content."},
})

// WebhookKeys are the keys of webhooks.NAME.
var WebhookKeys = strictyaml.Reference(webhookEntry{}, [][4]string{
	{"url", "an http or https address without user and #", "must be given, this or one of the next two", "Where replies are posted. Only scheme, host and port of it are ever shown."},
	{"url_env", "", "none", "The variable that holds the address, where it is a secret."},
	{"url_file", "one line, at most 16 KiB", "none", "The file that holds the address."},
	{"secret_env", "", "must be given, this or secret_file", "The variable that holds the secret to sign with: `whsec_` and 24 to 64 bytes in base64, as `turnctl webhooks secret` makes one."},
	{"secret_file", "one line, at most 16 KiB", "none", "The file that holds the secret."},
	{"old_secret_env", "", "none", "The variable of the secret before, while receivers may still check with it: requests carry a signature of each."},
	{"old_secret_file", "one line, at most 16 KiB", "none", "The file of the secret before."},
	{"agents", "names of agents", "all agents", "Whose replies are delivered."},
	{"sub_agents", "", "false", "Whether replies that agents write for other agents are delivered as well."},
	{"allow_private", "", "false", "Whether the address may be on this machine or in a private network. Without it only public addresses are connected to."},
	{"timeout", "", "15s", "Time for one attempt, from the look-up of the name to the status."},
	{"concurrency", "", "4", "Attempts at the same time, of all workers together."},
	{"max_attempts", "", "20", "Attempts after which a delivery is given up."},
	{"max_age", "", "72h", "Time since the first attempt after which a delivery is given up."},
})

// MCPServerKeys are the keys of mcp_servers.NAME.
var MCPServerKeys = strictyaml.Reference(MCPServer{}, [][4]string{
	{"command", "the program, then its arguments", "this or `url` must be given", "A server that is run as a program, and spoken to over its standard input and output. No shell reads it; a program without a slash is looked up in the worker's PATH."},
	{"dir", "a path", "the working directory", "The folder that the program runs in."},
	{"env", "names of variables to texts, or to env: VARIABLE or file: PATH", "none", "The program's environment. It gets no other variable, PATH and HOME included."},
	{"url", "an http or https address without user and #", "this or `command` must be given", "A server that is reached over streamable HTTP. The address may be a private one: it is yours. It is not followed to another."},
	{"headers", "names of headers to texts, or to env: VARIABLE or file: PATH", "none", "More headers of each request."},
	{"oauth", "the keys `oauth.*`", "none", "How tokens for the server are had. Only with `url`."},
	{"session", "", "shared", "One session for all agents, or one for each lane: a browser that no two should share, say."},
	{"connect_timeout", "", "30s", "Time in which the server must have answered when a session begins. 0: the default."},
	{"idle_timeout", "", "10m", "After how long without a call the session of a lane ends. 0: with the worker."},
	{"protocol", "", "the newest that both know", "The protocol version that is asked for, for a server that does not take being asked for a newer one."},
	{"effect", "", "once", "What running a call again would do, for tools of which `tools` does not say it. A server that takes calls as `keyed` knows them by `_meta`."},
	{"trust_hints", "", "false", "Whether the server's hints are believed where neither `effect` nor `tools` says anything: readOnlyHint as none, idempotentHint as keyed."},
	{"timeout", "", "0", "Time for one call. 0: the `tool_timeout` of the turn."},
	{"background", "", "true for effect none, else false", "Whether a call that takes longer than `async_timeout` goes on in the background. What has an effect and comes after it in the same answer waits for it all the same."},
	{"tools", "the server's names of tools, each with keys `tools.NAME.*`", "none", "What differs for single tools."},
	{"on_change", "", "report", "What happens when a tool's description or schema is no longer the pinned one: it is reported and used, or reported and refused, until `turnctl mcp pin`."},
	{"elicitation", "", "decline", "What a server is answered that asks for input in the middle of a call: that it is declined, or the defaults that it gave."},
	{"sampling", "", "decline", "What a server is answered that asks for an answer of a model in the middle of a call: that it is declined, or what a model of the agent's answers, at the expense of the turn."},
	{"max_sampling_calls", "", "4", "How often a server may ask a model in one call."},
	{"max_sampling_tokens", "", "8000", "Tokens that all questions and answers of one call may take together."},
	{"roots", "paths of folders", "none", "Folders that the server is told of as roots."},
})

// MCPToolKeys are the keys of mcp_servers.NAME.tools.TOOL.
var MCPToolKeys = strictyaml.Reference(MCPToolSettings{}, [][4]string{
	{"effect", "", "the server's", "What running a call again would do."},
	{"timeout", "", "the server's", "Time for one call. 0: the server's."},
	{"freshness", "", "the agent's `freshness_window` for a tool with an effect; else 0", "As `tools.NAME.freshness`."},
	{"repeat", "", "allow for a tool of effect none, else guard", "As `tools.NAME.repeat`."},
	{"max_result_chars", " characters", "the agent's `max_tool_result_chars`", "As `tools.NAME.max_result_chars`."},
	{"background", "", "the server's", "Whether a call may go on in the background."},
})

// MCPOAuthKeys are the keys of mcp_servers.NAME.oauth.
var MCPOAuthKeys = strictyaml.Reference(MCPOAuth{}, [][4]string{
	{"grant", "", "must be given", "How tokens are had: by what the worker is known by itself; by a person, who logs in once with `turnctl mcp login NAME`; or by an identity provider that vouches for the worker."},
	{"client_id", "", "none; must be given but with authorization_code", "What the worker is called at the authorization server. With authorization_code and without it the worker registers itself."},
	{"client_secret", "env: VARIABLE or file: PATH", "none", "The secret that proves it."},
	{"private_key", "env: VARIABLE or file: PATH, which hold a key in PEM: RSA, Ed25519, or EC on P-256, P-384 or P-521", "none", "A key that proves it in place of a secret, by what it signs (private_key_jwt). Not with authorization_code."},
	{"key_id", "", "none", "What the authorization server calls that key (kid)."},
	{"client_metadata_url", "an https address with a path", "none", "An address at which you describe the client. With authorization_code it is the client's id, where the authorization server takes such."},
	{"issuer", "an https address", "whichever the server names", "The only authorization server that is talked to. It may have a private address. Without it a secret goes to the one that the server names."},
	{"token_endpoint", "an https address", "is looked up", "Where tokens are asked for, if nothing is to be looked up. Only with client_credentials."},
	{"scopes", "", "what the server asks for", "What is asked for to begin with."},
	{"redirect_port", "", "0", "The port of this machine that the browser comes back to after a login, for authorization servers that want to know it before. 0: any that is free."},
	{"identity", "the keys `oauth.identity.*`", "must be given with enterprise", "What the identity provider knows the worker by."},
})

// MCPIdentityKeys are the keys of mcp_servers.NAME.oauth.identity.
var MCPIdentityKeys = strictyaml.Reference(MCPIdentity{}, [][4]string{
	{"token_endpoint", "an https address", "must be given", "Where the identity provider exchanges tokens."},
	{"client_id", "", "must be given", "What the worker is called there."},
	{"client_secret", "env: VARIABLE or file: PATH", "none", "The secret that proves it there."},
	{"token", "env: VARIABLE or file: PATH", "must be given", "The ID token. A file is read anew each time, for whoever renews it."},
})
