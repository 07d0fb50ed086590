package grants

// PauseAfterAnyScan makes the next scan of all lanes wait after each one, however fast the machine is.
func (s *Store) PauseAfterAnyScan() { s.scan.long = 0 }
