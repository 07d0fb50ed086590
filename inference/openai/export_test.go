package openai

import (
	"maps"
	"slices"

	"turnkeeper/inference"
)

// Codes returns all codes and types of errors that are known.
func Codes() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(certain)), maps.Keys(likely))
	slices.Sort(all)
	return all
}

// Declarations returns the number of declarations of tools that are kept.
func Declarations() int { return declarations.Len() }

// ResponsesProfile returns the profile with a name for the Responses API.
func ResponsesProfile(name string) Profile { return responsesProfile(profiles[name]) }

// Body returns the body of a request.
func Body(provider string, p Profile, req inference.Request) ([]byte, error) {
	body, err := render(provider, p, req)
	return body.Bytes(), err
}
