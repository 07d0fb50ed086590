package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// TestBodiesGrow grows stems at random, from the newest and from earlier ones, and compares each body with its text.
func TestBodiesGrow(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	type known struct {
		stem     Stem
		messages string
	}
	type made struct {
		body Body
		want string
	}
	stems, bodies := []known{{}}, []made{}
	text := func(longest int) string {
		return strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(longest))
	}
	for range 2000 {
		from := stems[len(stems)-1]
		if r.IntN(5) == 0 {
			from = stems[r.IntN(len(stems))]
		}
		head, more, tail := []string{`{"a":`, `{"b":`}[r.IntN(9)/8], text(300), "]"+text(20)
		buffer := []byte(more)
		next := known{from.stem.Grow([]byte(head), buffer), from.messages + more}
		clear(buffer) // it is used again
		body := next.stem.Body([]byte(tail))
		if next.stem.Len() != len(next.messages) {
			t.Fatalf("a stem has %d bytes of messages, want %d", next.stem.Len(), len(next.messages))
		}
		if stems = append(stems, next); len(next.messages) > 5000 {
			stems = []known{{}}
		}
		if bodies = append(bodies, made{body, head + next.messages + tail}); len(bodies) > 20 {
			bodies = bodies[1:]
		}
		for _, b := range bodies {
			checkBody(t, b.body, b.want)
		}
	}
	checkBody(t, WholeBody([]byte("whole")), "whole")
	checkBody(t, WholeBody(nil), "")
}

// A lonely hash has no copy, as those of some FIPS modules.
type lonely struct{ hash.Hash }

func TestABodyWhoseHashHasNoCopy(t *testing.T) {
	t.Parallel()
	stem := Stem{}.Grow([]byte("{"), []byte("[1"))
	stem.sum = lonely{stem.sum}
	stem = stem.Grow([]byte("{"), []byte(",2"))
	stem.sum = lonely{stem.sum}
	checkBody(t, stem.Body([]byte("]}")), "{[1,2]}")
}

// checkBody sends the body of a request twice, as for a connection that was lost, and compares what is sent.
func checkBody(t *testing.T, b Body, want string) {
	t.Helper()
	sum := sha256.Sum256([]byte(want))
	if b.Len() != len(want) || b.SHA256() != hex.EncodeToString(sum[:]) || string(b.Bytes()) != want {
		t.Fatalf("a body of %d bytes is %.60q, its hash %s; want %.60q", b.Len(), b.Bytes(), b.SHA256(), want)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	b.SetIn(req)
	again, err := req.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, sent := range []io.ReadCloser{req.Body, again} {
		text, err := io.ReadAll(sent)
		if err != nil || !bytes.Equal(text, []byte(want)) || req.ContentLength != int64(len(text)) {
			t.Fatalf("%d bytes are sent of %d: %.60q, %v", len(text), req.ContentLength, text, err)
		}
	}
}
