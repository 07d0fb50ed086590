package words

import (
	"fmt"
	"time"
)

// Ago formats a time relative to now: "3 min ago", "in 12 s".
func Ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + Coarse(-d)
	default:
		return Coarse(d) + " ago"
	}
}

// Coarse formats a duration in its largest unit.
func Coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
}

// Exact formats a duration with about three digits.
func Exact(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return d.Round(time.Second).String()
	}
}
