package tools

// A Sampling is a question of a tool's own to a model, asked within its call.
type Sampling struct {
	System      string            // empty: none
	Messages    []SamplingMessage // at least one
	MaxTokens   int               // of the answer; 0: what an answer of the agent may have
	Temperature *float64          // nil: the provider's default

	// Tokens bound question and answer together, by the estimate that is made
	// before the model is asked. 0: no bound.
	Tokens int64
}

// A SamplingMessage is one entry of a Sampling.
type SamplingMessage struct {
	FromModel bool // else from the user
	Text      string
}

// A Sampled is what a model answered. With an error only Tokens counts.
type Sampled struct {
	Text   string
	Model  string // as configured, without its provider
	Cut    bool   // the answer reached the bound of its tokens
	Tokens int64  // that question and answer took
}
