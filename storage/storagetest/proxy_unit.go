package storagetest

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"strings"
)

// Sent is a unit of work that a client sent: all messages up to the one that makes the server act and
// answer (a plain query, or the Sync of a pipeline).
type Sent struct {
	// Application is the application_name of the connection.
	Application string
	// Statements are the texts of the executed statements, in order. Empty means that the unit only
	// prepares statements or ends the connection.
	Statements []string
	// Commits reports whether the unit commits a transaction if nothing in it fails: it has a commit,
	// or is outside of a transaction block, where all messages up to a Sync are one transaction.
	Commits bool
}

// Executes reports whether the unit executes a statement.
func (s Sent) Executes() bool { return len(s.Statements) > 0 }

// Has reports whether one of the statements contains the text.
func (s Sent) Has(text string) bool {
	return slices.ContainsFunc(s.Statements, func(sql string) bool { return strings.Contains(sql, text) })
}

// units splits the messages of a client into units.
type units struct {
	application string
	prepared    map[string]string // texts of prepared statements, by name
	bound       string            // text of the statement bound last
	raw         []byte
	statements  []string
}

func newUnits(startup []byte) *units {
	return &units{application: parameters(startup)["application_name"], prepared: map[string]string{}}
}

// The types of client messages that units needs.
const (
	parse   = 'P'
	bind    = 'B'
	execute = 'E'
	query   = 'Q'
)

// take adds a message to the unit, and reports whether the unit is complete.
func (u *units) take(message []byte) (whole bool) {
	u.raw = append(u.raw, message...)
	content := message[5:]
	switch message[0] {
	case parse:
		name, rest := text(content)
		u.prepared[name], _ = text(rest)
	case bind:
		_, rest := text(content) // the portal's name
		name, _ := text(rest)
		u.bound = u.prepared[name]
	case execute:
		u.statements = append(u.statements, u.bound)
	case query:
		sql, _ := text(content)
		u.statements = append(u.statements, sql)
	}
	return bytes.ContainsAny(message[:1], "SQHXp") // Sync, Query, Flush, Terminate, password
}

// end returns the unit and begins the next. status is the status of the server's transaction before
// the unit.
func (u *units) end(status byte) (Sent, []byte) {
	sent, raw := Sent{Application: u.application, Statements: u.statements}, u.raw
	open := status != 'I'
	for _, sql := range sent.Statements {
		switch verb(sql) {
		case "begin", "start":
			open = true
		case "commit", "end":
			open, sent.Commits = false, true
		}
	}
	sent.Commits = sent.Commits || !open && sent.Executes()
	u.raw, u.statements = nil, nil
	return sent, raw
}

// verb returns the first word of a statement.
func verb(sql string) string {
	word, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(sql)), " ")
	return strings.TrimRight(word, ";")
}

// text reads a string of the protocol, which ends with a zero byte.
func text(b []byte) (s string, rest []byte) {
	head, rest, _ := bytes.Cut(b, []byte{0})
	return string(head), rest
}

// parameters returns the parameters in a client's first message.
func parameters(startup []byte) map[string]string {
	all := map[string]string{}
	for name, rest := text(startup[8:]); name != ""; name, rest = text(rest) {
		all[name], rest = text(rest)
	}
	return all
}

// isCancel reports whether a first message requests a cancel instead of starting a session.
func isCancel(startup []byte) bool {
	const cancelRequest = 80877102 // in place of the protocol version
	return binary.BigEndian.Uint32(startup[4:]) == cancelRequest
}

// readMessage reads one message of the protocol: its type (missing in the first message of a client),
// length and content.
func readMessage(r io.Reader, typeBytes int) ([]byte, error) {
	head := make([]byte, typeBytes+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	body := make([]byte, int(binary.BigEndian.Uint32(head[typeBytes:]))-4)
	_, err := io.ReadFull(r, body)
	return append(head, body...), err
}
