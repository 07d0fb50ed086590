package messagesbody

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// own holds the members of a body that Render sets, or leaves out on purpose.
var own = map[string]bool{"model": true, "messages": true, "system": true, "tools": true, "stream": true,
	"max_tokens": true, "cache_control": true}

// Limits of the API; those of budget and top_p hold for a request with thinking.
const (
	maxTemperature = 1
	minBudget      = 1024
	minTopP        = 0.95
)

// thinking is the member of Extra with this name.
type thinking struct {
	Type   string `json:"type"`
	Budget int    `json:"budget_tokens"` // of the type enabled
}

func thinkingOf(extra map[string]json.RawMessage) (t thinking) {
	_ = json.Unmarshal(extra["thinking"], &t) // Check refuses what is no object
	if t.Type != "enabled" {
		t.Budget = 0
	}
	return t
}

// leavesNoRoom reports whether the budget is no less than the limit of an answer; 0: no limit.
func (t thinking) leavesNoRoom(maxTokens int) bool { return maxTokens > 0 && t.Budget >= maxTokens }

func (t thinking) on() bool { return t.Type != "" && t.Type != "disabled" }

// Check returns an error, in plain words, about additional fields that cannot be sent.
func Check(extra map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if own[name] {
			return fmt.Errorf("extra must not have %s, which is set for each request", name)
		}
	}
	data, given := extra["thinking"]
	var t thinking
	if given && (json.Unmarshal(data, &t) != nil || t.Type == "") {
		return errors.New("extra.thinking must be an object with a type, such as {type: adaptive}")
	}
	if t.Type == "enabled" && t.Budget < minBudget {
		return fmt.Errorf("extra.thinking.budget_tokens is %d: the API demands at least %d", t.Budget, minBudget)
	}
	if !t.on() {
		return nil
	}
	if _, given := extra["top_k"]; given {
		return errors.New("extra has thinking and top_k, which the API refuses together")
	}
	var topP float64
	if data, given := extra["top_p"]; given && (json.Unmarshal(data, &topP) != nil || topP < minTopP || topP > 1) {
		return fmt.Errorf("extra.top_p is %s: with thinking the API takes %g to 1", data, minTopP)
	}
	return checkTemperature(extra["temperature"])
}

func checkTemperature(data json.RawMessage) error {
	var t float64
	if data != nil && (json.Unmarshal(data, &t) != nil || t != 1) {
		return fmt.Errorf("a temperature of %s and thinking: the API refuses them together; leave one out", data)
	}
	return nil
}

// CheckAnswer returns an error, in plain words, about settings of an agent that cannot be sent together with extra.
// maxTokens is 0 and temperature nil if they are not set.
func CheckAnswer(extra map[string]json.RawMessage, maxTokens int, temperature *float64) error {
	t := thinkingOf(extra)
	if t.leavesNoRoom(maxTokens) {
		return fmt.Errorf("an answer of at most %d tokens leaves no room for thinking with budget_tokens %d", maxTokens,
			t.Budget)
	}
	if temperature != nil && *temperature > maxTemperature {
		return fmt.Errorf("a temperature of %g: the API takes 0 to %d", *temperature, maxTemperature)
	}
	if temperature == nil || !t.on() {
		return nil
	}
	data, err := json.Marshal(*temperature)
	if err != nil {
		return err
	}
	return checkTemperature(data)
}
