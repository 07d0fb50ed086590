package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
)

// A Rebuilt request is one that was sent, made again from the journal.
type Rebuilt struct {
	inference.Request
	Recipe turnkeeper.Recipe
	Form   string // how the provider wrote it: see inference.Sent; empty: Canonical counts as sent
}

// Why a request cannot be made again. Each comes with a plain sentence.
var (
	ErrNoRound     = errors.New("there is no such round")
	ErrOlderRecord = errors.New("the round was written by an older release, which did not keep how requests were made")
	ErrNewerRecord = errors.New("the round was written by a newer release, which makes requests in a way that this one does not know")
)

// Rebuild makes the request of a round again, from the turn as its journal has
// it now, with the Summary that the round's recipe names, and the parts that its recipe names, by hash. It is what was sent if
// its hash is the recipe's: what is masked where it is stored cannot be known.
func Rebuild(record turnkeeper.Record, d *agentdef.Definition, number int, parts map[string]string) (Rebuilt, error) {
	if number < 1 || number > len(record.Rounds) {
		return Rebuilt{}, fmt.Errorf("%w: turn %d has %d", ErrNoRound, record.Turn.ID, len(record.Rounds))
	}
	recipe := record.Rounds[number-1].Recipe
	if recipe == nil {
		return Rebuilt{}, ErrOlderRecord
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
		turn: record.Turn.ID, def: d, body: record.Message.Body, history: toldHistory(record, d).History, rounds: record.Rounds[:number-1],
	}
	request, err := in.request(p)
	return Rebuilt{Request: request, Recipe: *recipe, Form: form}, err
}

// PartsOf are the hashes that the recipe of a round names.
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
		case turnkeeper.NewRequestPart(content).SHA256 != hash:
			return p, "", fmt.Errorf("a part of the request is not stored as it was sent, as where a secret was masked: %s", hash)
		}
	}
	var f frame
	if err := json.Unmarshal([]byte(parts[r.Frame]), &f); err != nil {
		return p, "", fmt.Errorf("the request's frame cannot be read: %w", err)
	}
	p = Plan{Recipe: r, note: f.Note}
	if r.Tools != "" {
		p.tools, err = toolsOf(parts[r.Tools])
	}
	return p, f.Form, err
}

// A frame is the RequestPart of what else a request is written with.
type frame struct {
	Note string `json:"note"`           // follows the system prompt
	Form string `json:"form,omitempty"` // how the provider wrote it: inference.Sent; empty: it does not say
}

// Canonical returns a value as JSON. Of a request, it is what counts as sent where a
// provider does not say what it sent.
func Canonical(value any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil { // what requests are made of always encodes
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
