package jsonlimit

// A Reader is a place that reads data from outside. docs/limits.md shows all of them.
type Reader struct {
	Data   string // what is read
	Limits        // beyond them the data is refused, unless Rest says otherwise
	Rest   string // what happens beyond the limits
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// maxMCPTools is the maximum number of tools that an MCP server may list.
const maxMCPTools = 2000

// The readers. A value 0 has no limit, because the data is not decoded as JSON, or because its number
// of bytes bounds it.
var (
	MCPMessage = Reader{Data: "Message of an MCP server", Rest: "the call or the connection fails", Limits: Limits{
		Bytes: 16 * mib, Depth: 128, Values: 1_000_000, Memory: 128 * mib, Object: 256,
		Items: []Items{{In: "result", Name: "tools", What: "tools", Max: maxMCPTools, Memory: 4 * kib}},
	}}
	MCPRequest = Reader{
		Data: "Request or notification of an MCP server, or a batch", Rest: "the connection ends",
		Limits: Limits{Bytes: 16 * mib, Depth: 128, Values: 20_000},
	}
	MCPRefusal = Reader{Data: "Error response to an MCP request", Rest: "not read", Limits: Limits{Bytes: 64 * kib,
		Depth: 128, Values: 20_000}}
	MCPLogin = Reader{
		Data: "Response of an authorization server", Rest: "the login fails",
		Limits: Limits{Bytes: 1 * mib, Depth: 32, Values: 20_000},
	}
	ToolSchema = Reader{Data: "JSON Schema of a tool or a form", Rest: "the tool or form is refused",
		Limits: Limits{Bytes: 1 * mib, Depth: 64, Values: 50_000}}
	ToolResult = Reader{Data: "Result of a program, an HTTP request or a Go tool", Rest: "cut",
		Limits: Limits{Bytes: 10_000_000}}
	ToolText = Reader{
		Data: "JSON in the text of an MCP result that has structured content too", Rest: "counts as another value",
		Limits: Limits{Bytes: 10_000_000, Depth: 128, Values: 1_000_000, Memory: 96 * mib},
	}
	Arguments = Reader{Data: "Arguments of a tool call", Rest: "the call is answered with an error",
		Limits: Limits{Bytes: 256 * kib, Depth: 64}}
	ModelAnswer  = Reader{Data: "Answer of a model", Rest: "the model call fails", Limits: Limits{Bytes: 32 * mib}}
	ModelMessage = Reader{
		Data: "Event of a streamed answer of a model, or a whole answer", Rest: "the model call fails",
		Limits: Limits{Bytes: 32 * mib, Depth: 128, Values: 50_000, Memory: 96 * mib},
	}
	ModelError = Reader{Data: "Error response of a provider", Rest: "not read; not decoded",
		Limits: Limits{Bytes: 256 * kib, Depth: 64, Values: 10_000}}
	ModelList = Reader{
		Data: "List of a provider's models", Rest: "counts as no list",
		Limits: Limits{Bytes: 16 * mib, Depth: 64, Values: 500_000, Memory: 96 * mib},
	}
	ModelText = Reader{
		Data: "JSON in the text of a model", Rest: "counts as text without JSON",
		Limits: Limits{Bytes: 32 * mib, Depth: 128, Values: 100_000, Memory: 64 * mib},
	}
	RequestBody = Reader{
		Data: "Body of an HTTP request", Rest: "status 400, or 413 for its length, which each route limits",
		Limits: Limits{Depth: 64, Values: 100_000, Memory: 64 * mib},
	}
	Answer = Reader{
		Data: "Answer of a person", Rest: "the answer is refused",
		Limits: Limits{Bytes: 256 * kib, Depth: 64, Values: 20_000},
	}
	State = Reader{Data: "State that an MCP server gave", Rest: "the call fails",
		Limits: Limits{Bytes: 512 * kib, Depth: 64, Values: 50_000}}
	ConfigFile = Reader{Data: "Config file", Rest: "the file is refused",
		Limits: Limits{Bytes: 64 * kib, Depth: 32}}
	WebhookResponse = Reader{Data: "Response to a webhook", Rest: "not read", Limits: Limits{Bytes: 16 * kib}}
)

// Readers lists all readers.
func Readers() []Reader {
	return []Reader{
		MCPMessage, MCPRequest, MCPRefusal, MCPLogin, ToolSchema, ToolResult, ToolText, Arguments,
		ModelAnswer, ModelMessage, ModelError, ModelList, ModelText, RequestBody, Answer, State, ConfigFile,
		WebhookResponse,
	}
}
