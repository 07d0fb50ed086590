package bounds_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"turnkeeper"
	"turnkeeper/internal/bounds"
	"turnkeeper/internal/golden"
)

// TestTheTable checks that each bound has one row, with its own field, a name and a text.
func TestTheTable(t *testing.T) {
	var b turnkeeper.Bounds
	fields, names := map[any]string{}, map[string]bool{}
	for _, row := range bounds.All() {
		field := row.Field(&b)
		if fields[field] != "" {
			t.Errorf("%s has the field of %s", row.Name, fields[field])
		}
		fields[field] = row.Name
		if row.Name == "" || names[row.Name] || row.Group == "" || !strings.HasSuffix(row.Doc, ".") {
			t.Errorf("%+v lacks a name of its own, a group or a text", row)
		}
		names[row.Name] = true
		if _, ok := field.(*bool); ok == (row.Range() != "") || row.Low > row.High {
			t.Errorf("%s: range %q", row.Name, row.Range())
		}
		// The value 0 means something, or is refused.
		if row.Zero != "" && row.Low > 0 {
			t.Errorf("%s says what 0 means, and refuses it", row.Name)
		}
	}
	if want := reflect.TypeFor[turnkeeper.Bounds]().NumField(); len(fields) != want {
		t.Errorf("%d rows for %d fields", len(fields), want)
	}
}

// TestCheck checks each bound at its limits and one beyond.
func TestCheck(t *testing.T) {
	if err := bounds.Check(bounds.Default()); err != nil {
		t.Fatal(err)
	}
	for _, row := range bounds.All() {
		if row.Range() == "" {
			continue
		}
		for value, ok := range map[int64]bool{row.Low - 1: false, row.Low: true, row.High: true, row.High + 1: false} {
			b := bounds.Default()
			switch field := row.Field(&b).(type) {
			case *int:
				*field = int(value)
			case *time.Duration:
				*field = time.Duration(value)
			}
			err := bounds.Check(b)
			if refused := err != nil && strings.Contains(err.Error(), row.Name+" is "); refused == ok {
				t.Errorf("%s is %d: %v", row.Name, value, err)
			}
		}
	}
}

// TestOverrides checks that what an agent's file gives replaces only that, and only what it may set.
func TestOverrides(t *testing.T) {
	var values turnkeeper.Bounds
	values.MaxRounds, values.Margin = 7, time.Second
	given := bounds.Given(values, func(name string) bool {
		return name == "max_rounds" || name == "lease_margin" || name == "paging"
	})
	want := bounds.Default()
	want.MaxRounds, want.Paging = 7, false
	if got := given.Over(bounds.Default()); got != want {
		t.Errorf("got %+v", got)
	}
	if none := bounds.Given(values, func(string) bool { return false }); none != nil || none.Over(want) != want {
		t.Errorf("got %v", none)
	}
}

// TestEveryBound records each bound with its default and range, what is said of a value beyond, and the one rule about
// several bounds.
func TestEveryBound(t *testing.T) {
	var written strings.Builder
	defaults := bounds.Default()
	for _, row := range bounds.All() {
		fmt.Fprintf(&written, "%s: %v, range %q, an agent may set it: %t\n", row.Name,
			reflect.ValueOf(row.Field(&defaults)).Elem(), row.Range(), row.Agent)
		if row.Range() == "" {
			continue
		}
		b := defaults
		switch field := row.Field(&b).(type) {
		case *int:
			*field = int(row.High + 1)
		case *time.Duration:
			*field = time.Duration(row.High + 1)
		}
		fmt.Fprintf(&written, "  %v\n", bounds.Check(b))
	}
	for _, over := range []time.Duration{-1, 0, 1} {
		b := defaults
		b.LeaseTTL, b.Margin, b.MaxDuration = 100*time.Second, 30*time.Second, 70*time.Second+over
		fmt.Fprintf(&written, "of a lease of 100s: %v\n", bounds.Check(b))
	}
	golden.File(t, filepath.Join("testdata", "bounds.txt"), written.String())
}
