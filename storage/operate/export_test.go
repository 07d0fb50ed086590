package operate

// SetMaxSearched sets the maximum number of messages or turns that one search reads.
func (s *Views) SetMaxSearched(n int32) { s.maxSearched = n }
