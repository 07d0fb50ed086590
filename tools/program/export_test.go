package program

import "time"

// SetKillTime sets how long calls wait for their families to end.
func SetKillTime(d time.Duration) { killTime = d }
