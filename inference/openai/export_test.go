package openai

import (
	"maps"
	"slices"
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
