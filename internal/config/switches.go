package config

import (
	"slices"
	"time"

	"turnkeeper/internal/config/strictyaml"
)

// ToolSwitches are what the settings say of how a tool is run. Unset: as the tool
// itself says.
type ToolSwitches struct {
	Freshness      *time.Duration // 0: equal calls are run, however fresh they are
	Repeat         string         // allow or guard; empty: unset
	MaxResultChars int            // 0: unset
	Background     *bool          // nil: unset
}

// switchKeys are the keys of tools.NAME that a tool may have which is no program.
var switchKeys = []string{"timeout", "freshness", "repeat", "max_result_chars", "background"}

// onlySwitches says that an entry of tools is about a tool that is there already.
func onlySwitches(v *strictyaml.Node) bool {
	return len(v.Fields) > 0 && !slices.ContainsFunc(v.Fields, func(f strictyaml.Field) bool { return !slices.Contains(switchKeys, f.Key) })
}

// toolSwitch reads one of the switches; label is its key within the mapping.
func (r *mappingReader) toolSwitch(s *ToolSwitches, key, label string, v *strictyaml.Node) {
	switch key {
	case "freshness":
		s.Freshness = r.freshness(label, v)
	case "repeat":
		s.Repeat = r.choice(label, v, "allow", "guard")
	case "max_result_chars":
		s.MaxResultChars = r.number(label, v, 1_000_000)
	case "background":
		s.Background = r.boolean(label, v)
	}
}

func (r *mappingReader) freshness(label string, v *strictyaml.Node) *time.Duration {
	value, err := v.AsDuration()
	switch {
	case err != nil:
		r.fault(v, label, err)
	case value < 0 || value > month:
		r.Add(v.Line, "%s%s is %s: it must be 0 to 720h", r.where, label, strictyaml.FormatDuration(value))
	}
	return &value
}
