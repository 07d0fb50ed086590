package inferencetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"turnkeeper/inference"
)

// A Signer applies two rules of providers to the requests of any number of conversations and workers. Reasoning is
// signed over the tools and all messages before it, and a request that repeats it after anything else is refused. A
// prompt cache holds the beginning of each request that was answered, and counts what a later request could take from
// it. The zero value is ready. It is safe for concurrent use.
type Signer struct {
	mu       sync.Mutex
	cached   map[digest]bool // of the beginnings of answered requests
	sent     map[string]int  // bytes of the newest answered request, by cache key
	refusals []string
	reuse    Reuse
}

// A Reuse counts, in bytes, what requests repeated of the newest request with their cache key, and how much of that was
// in the cache.
type Reuse struct{ Repeated, Cached int }

type digest [sha256.Size]byte

// signed is the Raw of a signed answer.
type signed struct {
	Content   string `json:"content"`
	Reasoning []any  `json:"reasoning_details"`
	Signature string `json:"signature"`
	Model     string `json:"model"`
}

// Check returns the refusal of a request, or nil.
func (s *Signer) Check(req inference.Request) error {
	before := beginnings(req)
	for i, m := range req.Messages {
		var answer signed
		if m.Raw == nil || json.Unmarshal(m.Raw, &answer) != nil || answer.Signature == "" {
			continue
		}
		if answer.Model == req.Model && answer.Signature == hex.EncodeToString(before[i][:]) {
			continue
		}
		detail := fmt.Sprintf("messages.%d: Invalid `signature` in `thinking` block. "+
			"The block is bound to a different conversation", i)
		s.mu.Lock()
		s.refusals = append(s.refusals, detail)
		s.mu.Unlock()
		return &inference.Error{Class: inference.ClassInvalid, Record: inference.RecordReasoning, Model: req.Model,
			Detail: detail}
	}
	return nil
}

// Sign returns the answer to a request with signed reasoning, and puts the request into the cache.
func (s *Signer) Sign(req inference.Request, res inference.Response) inference.Response {
	before := beginnings(req)
	last := before[len(req.Messages)]
	raw, err := json.Marshal(signed{Content: res.Text, Signature: hex.EncodeToString(last[:]), Model: req.Model,
		Reasoning: []any{map[string]string{"type": "reasoning.text",
			"text": "I think of " + hex.EncodeToString(last[:4])}}})
	if err != nil {
		panic(err) // it has only texts
	}
	res.Raw = raw
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached == nil {
		s.cached, s.sent = map[digest]bool{}, map[string]int{}
	}
	size, hit := 0, 0
	for i, m := range req.Messages {
		if size += sizeOf(m); s.cached[before[i+1]] {
			hit = size
		}
	}
	if repeated := min(s.sent[req.CacheKey], size); req.CacheKey != "" {
		s.reuse.Repeated += repeated
		s.reuse.Cached += min(hit, repeated)
		s.sent[req.CacheKey] = size
	}
	for _, beginning := range before {
		s.cached[beginning] = true
	}
	return res
}

// Refusals returns why requests were refused, in order.
func (s *Signer) Refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.refusals...)
}

// Reuse returns what the cache could give so far.
func (s *Signer) Reuse() Reuse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reuse
}

// beginnings returns the digest of the head of a request, and of each of its beginnings: element i is that of the
// messages before message i.
func beginnings(req inference.Request) []digest {
	all := make([]digest, 0, len(req.Messages)+1)
	add := func(last digest, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // it was decoded from JSON, or has only texts
		}
		all = append(all, sha256.Sum256(append(last[:], text...)))
	}
	add(digest{}, struct {
		Model string
		Tools []inference.ToolDefinition
	}{req.Model, req.Tools})
	for _, m := range req.Messages {
		add(all[len(all)-1], m)
	}
	return all
}

func sizeOf(m inference.Message) int {
	n := len(m.Text) + len(m.Raw)
	for _, c := range m.Calls {
		n += len(c.Name) + len(c.Arguments)
	}
	return n
}
