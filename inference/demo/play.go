package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// play gives the next answer: that of the first step after the one played last
// which is to be given now. A step of nothing: there is none left.
//
// Which step was played last is read in the conversation, from the ids of the
// calls that were asked for.
func (s *Script) play(c conversation) (step, error) {
	for i := c.played; i < len(s.steps); i++ {
		from := s.steps[i]
		if from.asks {
			holds, err := from.when.holds(c)
			if err != nil {
				return step{}, s.fault(i, "when", err)
			}
			if !holds {
				continue
			}
		}
		return s.answer(i, c)
	}
	return step{}, nil
}

// fault names the script, the step and the cause.
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

// render makes the arguments of a call.
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

// object is a JSON object on one line.
func object(text string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil || fields == nil {
		return nil, errors.New("what it renders is no JSON object: write texts within it by json")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// plain is the value as encoding/json takes it.
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

// callID tells, beside being unique in a turn, which step of a script asked.
// messages are those of the request.
func callID(messages, ordinal, step int) string {
	id := fmt.Sprintf("demo_%d_%d", messages, ordinal)
	if step > 0 {
		id += fmt.Sprintf("_step_%d", step)
	}
	return id
}

var stepID = regexp.MustCompile(`^demo_\d+_\d+_step_(\d{1,3})$`)

// stepOfCall is the step that asked for a call; 0: none of a script's.
func stepOfCall(id string) int {
	found := stepID.FindStringSubmatch(id)
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1]) // three digits
	return n
}
