// Command webhook-receiver is an example of a server that receives webhooks: it verifies
// each request, answers at once, and does the work for each reply and each ask once. README.md says how
// to try it.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "where to listen")
	flag.Parse()
	if err := run(*listen, os.Getenv("WEBHOOK_SECRET")); err != nil {
		fmt.Fprintln(os.Stderr, "webhook-receiver:", err)
		os.Exit(1)
	}
}

func run(listen, secret string) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return errors.New("WEBHOOK_SECRET must be the secret of the webhook: whsec_ and base64")
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "listening at http://%s\n", listener.Addr())
	server := &http.Server{Handler: &receiver{key: key, seen: map[string]bool{}}, ReadTimeout: 10 * time.Second}
	return server.Serve(listener)
}

type receiver struct {
	key []byte

	mu   sync.Mutex
	seen map[string]bool // ids; use a table instead, written in the transaction of the work
}

// A message is the body of a request.
type message struct {
	Type string `json:"type"`
	Data struct {
		ID      int64  `json:"id"`
		Agent   string `json:"agent"`
		Outcome string `json:"outcome"` // of a reply
		Body    string `json:"body"`    // of a reply
		Kind    string `json:"kind"`    // of an ask
		Tool    string `json:"tool"`    // of an ask: the tool that waits for an answer; empty: none
		Reason  string `json:"reason"`  // asks only: the question, or why a person must decide
		Path    string `json:"path"`    // of an ask: its path on the page
	} `json:"data"`
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 16<<20))
	if err != nil {
		return
	}
	id := req.Header.Get("webhook-id")
	if err := verify(r.key, id, req.Header.Get("webhook-timestamp"), req.Header.Get("webhook-signature"), body,
		time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		http.Error(w, "the body is not JSON", http.StatusBadRequest)
		return
	}
	if work := workFor(m); work != "" && r.first(id) {
		fmt.Fprintf(os.Stdout, "%s: %s\n", id, work)
	}
	w.WriteHeader(http.StatusNoContent) // also for a repeat, so the sender stops retrying
}

// workFor returns what to do for a message: here, what is printed. It is empty for a type that this program
// does not know: later releases may send some.
func workFor(m message) string {
	switch m.Type {
	case "reply.created":
		return fmt.Sprintf("%s of %s: %q", m.Data.Outcome, m.Data.Agent, m.Data.Body)
	case "ask.opened": // tell a person, who may answer on the page; the ask may be closed already
		return fmt.Sprintf("%s asks (%s %s): %q; answer at %s", m.Data.Agent, m.Data.Kind, m.Data.Tool,
			m.Data.Reason, m.Data.Path)
	}
	return ""
}

// first reports whether the id is new.
func (r *receiver) first(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen[id]
	r.seen[id] = true
	return !seen
}

// tolerance is the maximum difference between the clocks, and the maximum age of a
// request: somebody else may have recorded an older one and sent it again.
const tolerance = 5 * time.Minute

// verify returns why a request is not authentic, or nil.
func verify(key []byte, id, timestamp, signatures string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errors.New("the header webhook-timestamp is missing or is no number")
	}
	if now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("the request is too old, or the clocks are too far apart")
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	for signature := range strings.FieldsSeq(signatures) { // several while the secret is being changed
		version, text, _ := strings.Cut(signature, ",")
		sent, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(sent, mac.Sum(nil)) {
			return nil
		}
	}
	return errors.New("the signature is not by this secret")
}
