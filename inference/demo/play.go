package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"turnkeeper/inference"
)

// play returns the next answer: the first step after the last played one whose condition is
// true. If there is none, the step is empty.
//
// The ids of the calls in the conversation tell which step was played last.
func (s *Script) play(c conversation) (step, error) {
	for i := c.played; i < len(s.steps); i++ {
		from := s.steps[i]
		if from.asks {
			due, err := from.when.isTrue(c)
			if err != nil {
				return step{}, s.fault(i, "when", err)
			}
			if !due {
				continue
			}
		}
		return s.answer(i, c)
	}
	return step{}, nil
}

// fault returns an error with the script, the step and the cause.
func (s *Script) fault(i int, what string, err error) error {
	return fmt.Errorf("the demo script %s cannot be played: steps.%d.%s: %w", s.name, i+1, what, err)
}

func (s *Script) answer(i int, c conversation) (step, error) {
	left := maxRendered
	text, err := s.steps[i].text.render(c, &left)
	if err != nil {
		return step{}, s.fault(i, "text", err)
	}
	next := step{Text: strings.TrimSpace(text), number: i + 1, unsigned: s.steps[i].unsigned}
	for j, from := range s.steps[i].calls {
		arguments, err := from.arguments.render(c, &left)
		if err != nil {
			return step{}, s.fault(i, fmt.Sprintf("calls.%d.arguments", j+1), err)
		}
		next.Calls = append(next.Calls, call{from.name, arguments})
	}
	return next, nil
}

// render returns the arguments of a call.
func (v value) render(c conversation, left *int) (json.RawMessage, error) {
	if v.whole {
		text, err := v.text.render(c, left)
		if err != nil {
			return nil, err
		}
		return object(text)
	}
	plain, err := v.plain(c, left)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

// object returns a JSON object on one line.
func object(text string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil || fields == nil {
		return nil, errors.New("the result is not a JSON object: use the function json for texts in it")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// plain returns the value in the form that encoding/json encodes.
func (v value) plain(c conversation, left *int) (any, error) {
	switch {
	case v.literal != nil:
		return v.literal, nil
	case v.items != nil:
		list := make([]any, len(v.items))
		for i, item := range v.items {
			var err error
			if list[i], err = item.plain(c, left); err != nil {
				return nil, err
			}
		}
		return list, nil
	case v.fields != nil:
		fields := map[string]any{}
		for _, m := range v.fields {
			var err error
			if fields[m.key], err = m.value.plain(c, left); err != nil {
				return nil, fmt.Errorf("%s: %w", m.key, err)
			}
		}
		return fields, nil
	}
	return v.text.render(c, left)
}

// callID returns an id that is unique in a conversation, whose requests name their turn, and contains the step that
// asks for the call.
func callID(req inference.Request, ordinal, step int) string {
	id := fmt.Sprintf("demo_%s%d_%d", strings.TrimPrefix(req.User+"_", "_"), len(req.Messages), ordinal)
	if step > 0 {
		id += fmt.Sprintf("_step_%d", step)
	}
	return id
}

var stepID = regexp.MustCompile(`^demo_[\w-]*_step_(\d{1,3})$`)

// stepOfCall returns the step that asked for a call, or 0 if it was not a script's step.
func stepOfCall(id string) int {
	found := stepID.FindStringSubmatch(id)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1]) // three digits
	return n
}
