package jsonlimit_test

import (
	"fmt"
	"strings"
	"testing"

	"turnkeeper/internal/jsonlimit"
	"turnkeeper/internal/limittest"
)

// list returns n elements or members of a text, with commas between.
func list(n int, item func(i int) string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = item(i)
	}
	return strings.Join(all, ",")
}

// TestLimitsOfTheScanner tries each limit of the package.
func TestLimitsOfTheScanner(t *testing.T) {
	object := func(t *testing.T, members int) int64 {
		return sizeOf(t, "{"+list(members, func(i int) string { return fmt.Sprintf(`"%03d":0`, i) })+"}").Memory
	}
	byMemory := limittest.Row{Test: "TestMemory"}
	limittest.Check(t, map[string]limittest.Row{
		"kib": {None: "a unit"}, "mib": {None: "a unit"},
		"maxMCPTools": {At: 2000, Takes: func(_ *testing.T, tools int) bool {
			return jsonlimit.MCPMessage.Check([]byte(`{"result":{"tools":[`+list(tools, func(int) string {
				return "{}"
			})+"]}}")) == nil
		}},
		"maxName": {At: 64, Takes: func(_ *testing.T, length int) bool { // a longer name is not told apart
			name := strings.Repeat("n", length)
			l := jsonlimit.Limits{Items: []jsonlimit.Items{{In: "result", Name: name, What: "items", Max: 1}}}
			return l.Check([]byte(`{"result":{"`+name+`":[1,2]}}`)) != nil
		}},
		"pathLength": {Test: "TestItems"},
		"maxOpen": {At: 10000, Takes: func(_ *testing.T, depth int) bool {
			return (jsonlimit.Limits{}).Check([]byte(strings.Repeat("[", depth)+strings.Repeat("]", depth))) == nil
		}},
		"slotMemory": byMemory, "valueMemory": byMemory, "objectMemory": byMemory, "groupMemory": byMemory,
		"memberMemory": byMemory,
		"groupMembers": {At: 8, Takes: func(t *testing.T, members int) bool {
			return object(t, members)-object(t, members-1) == object(t, 3)-object(t, 2)
		}},
		"maxRun": {Test: "TestLongStrings"},
	})
}

// TestLimitsAtTheirValue checks each limit of a text at one less than the text has, at what it has, and at one more.
func TestLimitsAtTheirValue(t *testing.T) {
	text := `{"a":[1,[2,{"b":"c"}],null],"d":{"e":-1.5e3}}`
	has := sizeOf(t, text)
	for what, limit := range map[string]func(by int64) jsonlimit.Limits{
		"bytes of JSON": func(by int64) jsonlimit.Limits { return jsonlimit.Limits{Bytes: has.Bytes + by} },
		"levels of":     func(by int64) jsonlimit.Limits { return jsonlimit.Limits{Depth: has.Depth + int(by)} },
		"JSON values":   func(by int64) jsonlimit.Limits { return jsonlimit.Limits{Values: has.Values + int(by)} },
		"memory":        func(by int64) jsonlimit.Limits { return jsonlimit.Limits{Memory: has.Memory + by} },
	} {
		for _, by := range []int64{-1, 0, 1} {
			err := limit(by).Check([]byte(text))
			if (err == nil) != (by >= 0) || err != nil && !strings.Contains(err.Error(), what) {
				t.Errorf("%s, a limit of %+d: %v", what, by, err)
			}
		}
	}
	l := jsonlimit.Limits{Object: 100}
	s := jsonlimit.NewScanner(l)
	if err := s.Feed([]byte(text)); err != nil || s.Size().Memory-has.Memory != 300 {
		t.Errorf("three objects count for %d bytes more, %v", s.Size().Memory-has.Memory, err)
	}
}

// TestLongStrings checks that the pieces of a long string are one string, wherever it ends.
func TestLongStrings(t *testing.T) {
	for _, length := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 128 << 10, 128<<10 + 1} {
		s := sizeOf(t, `["`+strings.Repeat("x", length)+`"]`)
		if s.Values != 2 || s.Bytes != int64(length)+4 || s.Memory-sizeOf(t, `[""]`).Memory != int64(length) {
			t.Errorf("a string of %d characters: %+v", length, s)
		}
	}
}
