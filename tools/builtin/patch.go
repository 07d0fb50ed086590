package builtin

import (
	"context"
	"fmt"
	"strings"

	"turnkeeper"
	"turnkeeper/tools"
)

type patchArgs struct {
	ID    string      `json:"id" jsonschema:"the id of the output, or of the tool call"`
	Edits []patchEdit `json:"edits" jsonschema:"made in this order, each on what those before it left"`
}

type patchEdit struct {
	Find    string `json:"find" jsonschema:"a plain string that is in the text exactly once"`
	Replace string `json:"replace" jsonschema:"what stands there instead"`
	All     bool   `json:"all,omitempty" jsonschema:"replace every occurrence, of which there may be any number but none"`
}

// NewPatchOutput returns the tool `patch_output`, of effect none. It edits a copy of
// the text of a stored result, and shows the model only the id and size of the copy.
func NewPatchOutput() tools.Tool {
	spec := tools.Spec{
		Name: "patch_output", Effect: turnkeeper.EffectNone, OutputIDs: []string{"id"},
		Description: "Edits a stored tool result without showing it: each plain string to find is replaced. " +
			"Gives a new stored result, and says its id; the old one stays.",
	}
	return tools.New(spec, patchOutput)
}

func patchOutput(ctx context.Context, call tools.Call, args patchArgs) (tools.Result, error) {
	o, err := find(ctx, call, strings.TrimPrefix(args.ID, "output:"))
	switch {
	case err != nil:
		return refusals(tools.Result{}, err)
	case o.Binary:
		return refusals(tools.Result{}, refused("that result is binary; only text can be edited"))
	case len(args.Edits) == 0:
		return refusals(tools.Result{}, refused("edits is empty: give at least one"))
	}
	text, err := o.Read(ctx, 0, o.Chars)
	if err != nil {
		return tools.Result{}, err
	}
	replaced := 0
	for i, edit := range args.Edits {
		if ctx.Err() != nil {
			return tools.Result{}, context.Cause(ctx)
		}
		n, err := edit.count(i+1, text)
		if err != nil {
			return refusals(tools.Result{}, err)
		}
		if size := len(text) + n*(len(edit.Replace)-len(edit.Find)); size > turnkeeper.MaxOutputBytes {
			return refusals(tools.Result{}, refused(
				fmt.Sprintf("edit %d would make the text %d bytes long; at most %d are kept", i+1, size,
					turnkeeper.MaxOutputBytes)))
		}
		text = strings.ReplaceAll(text, edit.Find, edit.Replace)
		replaced += n
	}
	return tools.Result{
		Text: text, Incomplete: o.Cut,
		ShowAs: func(id string) string {
			return fmt.Sprintf(
				"Stored as output:%s, %d bytes. %d edits were made, %d strings replaced. %s itself is unchanged.",
				id, len(text), len(args.Edits), replaced, args.ID)
		},
	}, nil
}

// count returns the number of replacements of the edit. n is the edit's number in
// errors.
func (e patchEdit) count(n int, text string) (int, error) {
	at := -1
	if e.Find != "" {
		at = strings.Index(text, e.Find)
	}
	switch {
	case e.Find == "":
		return 0, refused(fmt.Sprintf("edit %d has nothing to find", n))
	case at < 0:
		return 0, refused(fmt.Sprintf("edit %d: its string is not in the text; none of the edits was made", n))
	case e.All:
		return strings.Count(text, e.Find), nil
	case strings.Contains(text[at+1:], e.Find):
		return 0,
			refused(
				fmt.Sprintf(
					"edit %d: its string is in the text more than once; make it longer, or say all. None of the edits was made", n))
	}
	return 1, nil
}
