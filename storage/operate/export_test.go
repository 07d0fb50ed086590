package operate

// CheckIn is Check in a transaction that goes on.
var CheckIn = checkIn

// SetMaxSearched sets the maximum number of messages or turns that one search reads.
func (s *Views) SetMaxSearched(n int32) { s.maxSearched = n }
