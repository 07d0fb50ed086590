package tools

// A Sampling is a question that a tool asks a model within its call.
type Sampling struct {
	System      string            // empty: none
	Messages    []SamplingMessage // at least one
	MaxTokens   int               // of the answer; 0: the agent's limit
	Temperature *float64          // nil: the provider's default

	// Tokens limits the sum of question and answer, as estimated before the model
	// call. 0: no limit.
	Tokens int64
}

// A SamplingMessage is one entry of a Sampling.
type SamplingMessage struct {
	FromModel bool // false: from the user
	Text      string
}

// A Sampled is the model's answer. With an error only Tokens is set.
type Sampled struct {
	Text   string
	Model  string // as configured, without its provider
	Cut    bool   // the answer reached its token limit
	Tokens int64  // used by question and answer
}
