package prompt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"turnkeeper"
	"turnkeeper/agentdef"
	"turnkeeper/inference"
	"turnkeeper/internal/turnlog"
)

// A Sent is a request that was sent to a model, built again from the journal.
type Sent struct {
	inference.Request
	Recipe turnkeeper.Recipe
	Form   string // how the provider encoded it, see inference.Sent; empty: as Canonical does
	Turn   turnkeeper.TurnID
	Round  int

	// As its endpoint got it. Rebuild leaves it out, because only the provider's package can encode it.
	Body   []byte // for a provider without an endpoint, the request as JSON
	SHA256 string // of Body
	Exact  bool   // Body is identical to the sent one
}

// Errors of Rebuild.
var (
	ErrNoRound     = errors.New("there is no such round")
	ErrNoRecipe    = errors.New("the round has no recipe of its request")
	ErrOtherRecord = errors.New("the round was written by another release, whose recipes this program cannot read")
)

// Rebuild builds the request of a round again. record is the turn as it is in the journal now, with the Summary that
// SummaryOf names. parts holds the request
// parts that PartsOf names, by hash. If the request's hash differs from the recipe's, a stored text
// has been masked, and the request is not exactly what was sent.
func Rebuild(record *turnlog.Record, d *agentdef.Definition, number int, parts map[string]string) (Sent, error) {
	if number < 1 || number > len(record.Rounds) {
		return Sent{}, fmt.Errorf("%w: turn %d has %d", ErrNoRound, record.Turn.ID, len(record.Rounds))
	}
	recipe := record.Rounds[number-1].Recipe
	if recipe == nil {
		return Sent{}, ErrNoRecipe
	}
	if recipe.Version != recipeVersion {
		return Sent{}, ErrOtherRecord
	}
	e, form, err := storedEpoch(record, number, parts)
	if err != nil {
		return Sent{}, err
	}
	shown, missing := e.shown(shownHistory(record, d).History)
	if missing != 0 {
		return Sent{}, fmt.Errorf("turn %d, which the request shows, is not stored", missing)
	}
	upTo := record.Rounds[:number]
	request, err := input{
		source: sourceOf(record, d), shown: e.withoutLate(shown, record.Turn.ID, upTo),
		rounds: upTo[:number-1], epoch: e, final: recipe.Final, notice: recipe.Notice,
	}.request()
	return Sent{Request: request, Recipe: *recipe, Form: form, Turn: record.Turn.ID, Round: number}, err
}

// PartsOf returns the hashes of the request parts that the request of a round is rebuilt from.
func PartsOf(record *turnlog.Record, number int) (hashes []string) {
	if number < 1 || number > len(record.Rounds) || record.Rounds[number-1].Recipe == nil {
		return nil
	}
	recipe := record.Rounds[number-1].Recipe
	if e := epochIn(record, recipe.Epoch); e != nil {
		hashes = []string{e.System, e.Form}
		if e.Tools != "" {
			hashes = append(hashes, e.Tools)
		}
	}
	if recipe.Form != "" {
		hashes = append(hashes, recipe.Form)
	}
	return hashes
}

// SummaryOf returns the last turn of the summary that the request of a round shows, or 0.
func SummaryOf(record *turnlog.Record, number int) turnkeeper.TurnID {
	if number >= 1 && number <= len(record.Rounds) && record.Rounds[number-1].Recipe != nil {
		if e := epochIn(record, record.Rounds[number-1].Recipe.Epoch); e != nil {
			return e.Summary
		}
	}
	return 0
}

// storedEpoch returns the epoch of a round's recipe, and how the provider encoded the request.
func storedEpoch(record *turnlog.Record, number int, parts map[string]string) (e *epoch, form string, err error) {
	recipe := record.Rounds[number-1].Recipe
	if e = epochIn(record, recipe.Epoch); e == nil {
		return nil, "", fmt.Errorf("the first request of its epoch, round %d of turn %d, is not stored",
			recipe.Epoch.Round, recipe.Epoch.Turn)
	}
	for _, hash := range PartsOf(record, number) {
		switch content, ok := parts[hash]; {
		case !ok:
			return nil, "", fmt.Errorf("a part of the request is not stored: %s", hash)
		case turnlog.NewRequestPart(content).SHA256 != hash:
			return nil, "",
				fmt.Errorf(
					"a part of the request is not stored as it was sent, perhaps because a secret was masked: %s", hash)
		}
	}
	var whole bool
	if e.head.system, whole = e.systemMessage(parts[e.System], record.Summary); !whole {
		return nil, "", fmt.Errorf("the summary of the turns up to %d is not stored", e.Summary)
	}
	if e.Tools != "" {
		e.head.tools, err = toolsOf(parts[e.Tools])
	}
	return e, parts[cmp.Or(recipe.Form, e.Form)], err
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
