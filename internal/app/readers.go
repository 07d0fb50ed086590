package app

import (
	"turnkeeper/inference/openai"
	"turnkeeper/inference/openai/completions"
	"turnkeeper/inference/openai/messages"
	"turnkeeper/inference/openai/responses"
	"turnkeeper/internal/app/setup"
)

// readers parse the answers of the APIs that package openai speaks.
var readers = setup.Readers{openai.APIChat: completions.Read, openai.APIMessages: messages.Read,
	openai.APIResponses: responses.Read}
