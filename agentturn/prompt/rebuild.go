package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A Rebuilt is a request that was built again from the journal.
type Rebuilt struct {
	inference.Request
	Recipe turnkeeper.Recipe
	Form   string // how the provider encoded it, see inference.Sent; empty: as Canonical does
}

// Errors of Rebuild.
var (
	ErrNoRound     = errors.New("there is no such round")
	ErrNoRecipe    = errors.New("the round has no recipe of its request")
	ErrNewerRecord = errors.New("the round was written by a newer release, whose recipes this program cannot read")
)

// Rebuild builds the request of a round again. record is the turn as it is in the journal
// now, with the Summary that the round's recipe names. parts holds the request parts that
// the recipe names, by hash. If the request's hash differs from the recipe's, a stored text
// has been masked, and the request is not exactly what was sent.
func Rebuild(record *turnlog.Record, d *agentdef.Definition, number int, parts map[string]string) (Rebuilt, error) {
	if number < 1 || number > len(record.Rounds) {
		return Rebuilt{}, fmt.Errorf("%w: turn %d has %d", ErrNoRound, record.Turn.ID, len(record.Rounds))
	}
	recipe := record.Rounds[number-1].Recipe
	if recipe == nil {
		return Rebuilt{}, ErrNoRecipe
	}
	if recipe.Version > recipeVersion {
		return Rebuilt{}, ErrNewerRecord
	}
	p, form, err := planOf(*recipe, parts)
	if err != nil {
		return Rebuilt{}, err
	}
	if recipe.Summary != 0 {
		if record.Summary.UpTo != recipe.Summary {
			return Rebuilt{}, fmt.Errorf("the summary of the turns up to %d is not stored", recipe.Summary)
		}
		p.summary = record.Summary.Text
	}
	in := Input{
		turn: record.Turn.ID, def: d, body: record.Message.Body, rounds: record.Rounds[:number-1],
		history: shownHistory(record, d).History,
	}
	request, err := in.request(p)
	return Rebuilt{Request: request, Recipe: *recipe, Form: form}, err
}

// PartsOf returns the hashes of the request parts that a recipe names.
func PartsOf(r turnkeeper.Recipe) []string {
	hashes := []string{r.Frame}
	if r.Tools != "" {
		hashes = append(hashes, r.Tools)
	}
	return hashes
}

func planOf(r turnkeeper.Recipe, parts map[string]string) (p Plan, form string, err error) {
	for _, hash := range PartsOf(r) {
		switch content, ok := parts[hash]; {
		case !ok:
			return p, "", fmt.Errorf("a part of the request is not stored: %s", hash)
		case turnlog.NewRequestPart(content).SHA256 != hash:
			return p, "",
				fmt.Errorf(
					"a part of the request is not stored as it was sent, perhaps because a secret was masked: %s", hash)
		}
	}
	var f frame
	if err := json.Unmarshal([]byte(parts[r.Frame]), &f); err != nil {
		return p, "", fmt.Errorf("cannot read the request's frame: %w", err)
	}
	p = Plan{Recipe: r, note: f.Note}
	if r.Tools != "" {
		p.tools, err = toolsOf(parts[r.Tools])
	}
	return p, f.Form, err
}

// A frame is the content of the RequestPart that Recipe.Frame names.
type frame struct {
	Note string `json:"note"`           // follows the system prompt
	Form string `json:"form,omitempty"` // how the provider encoded it, see inference.Sent; empty: unknown
}

// Canonical returns a value as JSON without HTML escaping. If a provider does not report
// what it sent, a request counts as sent in this form.
func Canonical(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil { // requests can always be encoded
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
