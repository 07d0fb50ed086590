package prompt

import (
	"slices"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

// parts are what is known of stored request parts. The keys are hashes.
type parts struct {
	contents map[string]string
	asked    map[string]bool // parts that AddParts was called for
	written  map[string]bool // parts that the turn's rounds name
}

// stored takes note of the parts that a recipe on record names.
func (p parts) stored(r turnkeeper.Recipe) {
	p.written[r.Form] = true
	if r.Start != nil {
		p.written[r.Start.System], p.written[r.Start.Tools], p.written[r.Start.Form] = true, true, true
	}
}

// unwritten returns those of the parts that no earlier round of the turn has stored.
func (p parts) unwritten(parts []turnlog.RequestPart) (unwritten []turnlog.RequestPart) {
	for _, part := range parts {
		p.contents[part.SHA256] = part.Content
		if !p.written[part.SHA256] {
			p.written[part.SHA256] = true
			unwritten = append(unwritten, part)
		}
	}
	return unwritten
}

// HasCallID reports whether an earlier turn that requests show has a call with this id on the wire.
func (s *State) HasCallID(id string) bool {
	if s.pasts.newest.epoch == nil { // no request has extended the epoch yet
		return slices.Contains(callIDs(s.history), id)
	}
	return slices.Contains(s.pasts.newest.callIDs.Items(), id)
}

// MissingParts returns the hashes of stored parts that the next request repeats, and that this process would not write
// the same: another release wrote them, or the list of a tool server has changed. The caller reads them for AddParts.
func (s *State) MissingParts(rounds []turnkeeper.Round) (missing []string) {
	r := s.newest(rounds)
	if r == nil || s.epoch(r.Epoch, rounds) == nil {
		return nil
	}
	e := s.epoch(r.Epoch, rounds)
	own := turnlog.NewRequestPart(s.systemText())
	s.parts.contents[own.SHA256] = own.Content
	for _, hash := range []string{e.System, e.Tools} {
		_, known := s.parts.contents[hash]
		if !known && hash != "" && hash != s.tools().part.SHA256 && !s.parts.asked[hash] {
			missing = append(missing, hash)
		}
	}
	return missing
}

// AddParts adds the stored parts that MissingParts asked for, by hash. One that is gone, or was changed, is left out.
func (s *State) AddParts(asked []string, parts map[string]string) {
	for _, hash := range asked {
		s.parts.asked[hash] = true
		if content, ok := parts[hash]; ok && turnlog.NewRequestPart(content).SHA256 == hash {
			s.parts.contents[hash] = content
		}
	}
}
