package request

import (
	"fmt"
	"net/http"
)

// A Problem is an HTTP error in the format of RFC 9457.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail" doc:"what is wrong, in a plain sentence"`

	Param, Code string `json:"-"` // fields of an error of the Responses API
	// Lasts marks a problem that a retry at once does not solve. An EventSource is answered so that it stops
	// reconnecting.
	Lasts bool `json:"-"`
	fixed bool // the detail is a constant, so it holds no secret
}

func (p *Problem) Error() string { return p.Detail }

// Temporary reports whether the same request may succeed later: status 429 or 503.
func (p *Problem) Temporary() bool {
	return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
}

// Masked returns the detail with secrets masked.
func (p *Problem) Masked(mask func(string) string) string {
	if p.fixed {
		return p.Detail
	}
	return mask(p.Detail)
}

// Refuse returns a problem. A format without args is a constant, and is not masked.
func Refuse(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format,
		args...), fixed: len(args) == 0}
}
