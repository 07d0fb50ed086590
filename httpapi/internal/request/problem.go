package request

import (
	"fmt"
	"net/http"
)

// A Problem is an error as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail" doc:"a plain sentence"`

	Param, Code string `json:"-"` // of an error of the Responses API
	fixed       bool   // the detail is a constant of this program: it has no secret
}

func (p *Problem) Error() string { return p.Detail }

// Temporary reports whether the same request may be answered later.
func (p *Problem) Temporary() bool {
	return p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable
}

// Masked returns the detail as the client reads it: without secrets.
func (p *Problem) Masked(mask func(string) string) string {
	if p.fixed {
		return p.Detail
	}
	return mask(p.Detail)
}

// Refuse returns a problem. A sentence without args is a constant of this program, and is not masked.
func Refuse(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...), fixed: len(args) == 0}
}
