package journal

// HoldGroup makes all writes wait until release, which sends them as one batch. waiting returns how many wait.
func (s *Store) HoldGroup() (waiting func() int, release func()) {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	s.group.busy = true
	return func() int {
		s.group.mu.Lock()
		defer s.group.mu.Unlock()
		return len(s.group.waiting)
	}, s.group.next
}

// Appoint lets a write that waits lead, as the end of the one before it does. giveUp ends its context.
func (s *Store) Appoint() (waiting func() int, giveUp func()) {
	waiting, release := s.HoldGroup()
	m := s.group.join(&change{}, nil)
	release()
	return waiting, func() { s.group.leave(m) }
}
