package agentturn

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"turnkeeper/agentturn/calls"
	"turnkeeper/agentturn/prompt"
	"turnkeeper/agentturn/toolrun"
	"turnkeeper/internal/turnlog"
	"turnkeeper/outputs"
	"turnkeeper/policy"
	"turnkeeper/tools"
)

// Limits of the results that a process keeps (tools.Spec.Cache).
const (
	maxKept       = 64 << 20  // of all
	maxKeptResult = 256 << 10 // of one: larger ones may be stored while they arrive
	keptOverhead  = 512       // estimated bytes of an entry without its text
)

// keptResults are the results of reads that a process keeps. When there are too many, the least recently used goes
// first. The zero value is empty. It is safe for concurrent use.
type keptResults struct {
	mu    sync.Mutex
	all   map[keptKey]*list.Element // of *keptResult
	order list.List                 // the most recently used first
	bytes int
}

// A keptKey is the hash of all that a kept result depends on.
type keptKey [sha256.Size]byte

// A keptResult is the result of a read that succeeded: a text.
type keptResult struct {
	key     keptKey
	result  tools.Result
	since   time.Time // when its run began
	expires time.Time
	bytes   int
}

// get returns the result of a key, or nil.
func (k *keptResults) get(key keptKey, now time.Time) *keptResult {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := k.all[key]
	if found == nil {
		return nil
	}
	kept := found.Value.(*keptResult) //nolint:forcetypeassert // it holds nothing else
	if !now.Before(kept.expires) {
		k.remove(found)
		return nil
	}
	k.order.MoveToFront(found)
	return kept
}

// put keeps a result in place of an older one.
func (k *keptResults) put(kept *keptResult) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.all[kept.key]; old != nil {
		k.remove(old)
	}
	for k.bytes+kept.bytes > maxKept && k.order.Len() > 0 {
		k.remove(k.order.Back())
	}
	if k.all == nil {
		k.all = map[keptKey]*list.Element{}
	}
	k.all[kept.key] = k.order.PushFront(kept)
	k.bytes += kept.bytes
}

func (k *keptResults) remove(e *list.Element) {
	kept := k.order.Remove(e).(*keptResult) //nolint:forcetypeassert // it holds nothing else
	delete(k.all, kept.key)
	k.bytes -= kept.bytes
}

// keptKeyOf returns the key of the results of calls that are equal to one.
func (w *tooling) keptKeyOf(call *calls.Call) keptKey {
	turn := w.task.record.Turn
	about := struct {
		Agent, Definition  string
		Tool               tools.Spec // with the scope
		User, Conversation string
		Arguments          json.RawMessage
		Labels             []policy.Label
	}{Agent: turn.Agent, Definition: w.task.def.Hash, Tool: call.Spec, Arguments: call.Args()}
	if call.Spec.CacheScope != tools.CacheAgent {
		about.User, about.Conversation = turn.User, turn.Conversation
	}
	for _, mark := range w.calls.LabelsOf(call) {
		about.Labels = append(about.Labels, mark.Label)
	}
	slices.Sort(about.Labels)
	text, err := json.Marshal(about)
	if err != nil { // cannot happen: arguments and schemas are valid JSON
		panic(err)
	}
	return sha256.Sum256(text)
}

// keptFor returns the kept result of an equal call, or nil.
func (w *tooling) keptFor(call *calls.Call) *keptResult {
	if call.Spec.Cache <= 0 || call.Starts > 0 {
		return nil
	}
	return w.kept.get(w.keptKeyOf(call), time.Now())
}

// keptRun returns a run that has ended with the kept result of an equal call, or nil.
func (w *tooling) keptRun(call *calls.Call) *toolrun.Run {
	kept := w.keptFor(call)
	if kept == nil {
		return nil
	}
	w.task.log.Debug("a read is answered with a result that is kept", zap.Stringer("call", call.Key),
		zap.String("tool", call.Name), zap.Duration("age", time.Since(kept.since)))
	return toolrun.Ended(*call.ToolCall, newOutputID(call), toolrun.Result{
		RunResult: tools.RunResult{Result: kept.result, Outcome: tools.Succeeded}, KeptSince: kept.since,
	})
}

// keep keeps the result of a run with its labels, if the tool says so. What is not a whole text is not kept.
func (w *tooling) keep(call *calls.Call, done toolrun.Result, labels []policy.Mark) {
	raw := done.Result
	if call.Spec.Cache <= 0 || !done.KeptSince.IsZero() || done.Outcome != tools.Succeeded || raw.Bytes != nil ||
		raw.Kept != nil || raw.ShowAs != nil || len(raw.Attached) > 0 || raw.Incomplete ||
		len(raw.Text) > maxKeptResult {
		return
	}
	raw.Labels = labels
	w.kept.put(&keptResult{key: w.keptKeyOf(call), result: raw, since: done.Began,
		expires: done.Began.Add(call.Spec.Cache), bytes: len(raw.Text) + keptOverhead})
}

// resultOf returns the result of a run that the turn has waited for. One that was kept says how old it is. A handle
// passes the text on without that.
func (w *tooling) resultOf(call *calls.Call, done *toolrun.Run) turnlog.CallResult {
	since := done.Result.KeptSince
	if since.IsZero() {
		return w.callResult(call, done.Result.Result, done.ID)
	}
	result := w.takeResult(call, done.Result.Result, done.ID, w.task.offered.Stored && w.task.bounds.OutputHandles)
	result.Shown = prompt.WithAge(result.Shown, outputs.Placeholder{ID: done.ID, Tool: call.Name}, time.Since(since))
	return result
}
