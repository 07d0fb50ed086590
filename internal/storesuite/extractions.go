package storesuite

import (
	"strings"

	"turnkeeper"
	"turnkeeper/internal/turnlog"
)

func callUsage(e *env) {
	d := e.turn()
	r := round(1, turnkeeper.EffectNone, turnkeeper.EffectNone, turnkeeper.EffectOnce)
	r.Usage = turnkeeper.Usage{InputTokens: 1000, OutputTokens: 100}
	d.append(turnlog.Entry{Round: r})
	n := nonce()
	d.mustStart(key(1, 3), n, 1)
	used := turnkeeper.Usage{InputTokens: 7, OutputTokens: 5, CachedTokens: 3, CacheWriteTokens: 4,
		ReasoningTokens: 2, Estimated: true}
	one, two, three := result(key(1, 1), "", turnkeeper.CallSucceeded, "x"),
		result(key(1, 2), "", turnkeeper.CallFailed, "y"), result(key(1, 3), n, turnkeeper.CallSucceeded, "z")
	one.Usage, three.Usage = used, turnkeeper.Usage{InputTokens: 1}
	d.append(turnlog.Entry{Results: []turnlog.CallResult{one, two}, Round: round(2)})
	// A write counts once, also if its answer is lost.
	e.CutNext(true)
	d.append(turnlog.Entry{Results: []turnlog.CallResult{three}})
	// Failed model calls count once too.
	failed := turnlog.FailedAttempt{Round: 3, Attempt: 1, Class: "transport",
		Usage: turnkeeper.Usage{InputTokens: 20_000, OutputTokens: 300, Estimated: true}}
	e.CutNext(true)
	d.append(turnlog.Entry{Failed: []turnlog.FailedAttempt{failed, failed}})
	turn, _ := e.Turn(d.grant.TurnID)
	equal(e, "the turn's", turn.Usage, turnkeeper.Usage{InputTokens: 41_008, OutputTokens: 705, CachedTokens: 3,
		CacheWriteTokens: 4, ReasoningTokens: 2, Estimated: true})
	equal(e, "the first call's", d.call(key(1, 1)).Usage, used)
	equal(e, "the second call's", d.call(key(1, 2)).Usage, turnkeeper.Usage{})
	equal(e, "the third call's", d.call(key(1, 3)).Usage, three.Usage)
	wantErr(e, "the end", d.end(succeeded("done")), nil)
}

func extractionKeys(e *env) {
	d := e.turn()
	kept := turnlog.ExtractionKey{SourceSHA256: "s", Query: "who?", Model: "p/m", Prompt: 1}
	cache := e.Extractions()
	find := func(k turnlog.ExtractionKey) string {
		e.Helper()
		value, found, err := cache.FindExtraction(e.Context(), k)
		wantErr(e, "find", err, nil)
		equal(e, "found", found, value != nil)
		return strings.ReplaceAll(string(value), " ", "")
	}
	keep := func(value string) {
		e.Helper()
		wantErr(e, "keep", cache.KeepExtraction(e.Context(), d.grant.TurnID, kept, []byte(value)), nil)
	}
	equal(e, "before it is stored", find(kept), "")
	keep(`{"a":"\u0000 <é>"}`)
	equal(e, "stored", find(kept), `{"a":"\u0000<é>"}`)
	keep(`{"a":2}`)
	equal(e, "stored again", find(kept), `{"a":2}`)
	for name, change := range map[string]func(*turnlog.ExtractionKey){
		"another source": func(k *turnlog.ExtractionKey) { k.SourceSHA256 = "t" },
		"another query":  func(k *turnlog.ExtractionKey) { k.Query = "who" },
		"another model":  func(k *turnlog.ExtractionKey) { k.Model = "p/n" },
		"another prompt": func(k *turnlog.ExtractionKey) { k.Prompt = 2 },
	} {
		other := kept
		change(&other)
		equal(e, name, find(other), "")
	}
}
