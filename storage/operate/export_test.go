package operate

// SetLooksAt sets how many messages or turns one search looks at.
func (s *Views) SetLooksAt(n int32) { s.looksAt = n }
