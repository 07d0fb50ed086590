package grants

import "time"

// PauseAfterAnyScan makes the next scan of all lanes wait after each one, however fast the machine is.
func (s *Store) PauseAfterAnyScan() { s.scan.long = 0 }

// AgeLooks makes all looks so far happen d earlier.
func (s *Store) AgeLooks(d time.Duration) {
	s.floor.mu.Lock()
	defer s.floor.mu.Unlock()
	for i := range s.floor.looks {
		s.floor.looks[i].at = s.floor.looks[i].at.Add(-d)
	}
}
