package faults_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"turnkeeper"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// An inputUsage is the number of input tokens, and how many of them were read from and written to a cache.
type inputUsage struct {
	Input   int64 `json:"input_tokens"`
	Cached  int64 `json:"cached_tokens"`
	Written int64 `json:"cache_write_tokens"`
}

func usageOf(b inferencetest.Bill) (u inputUsage) {
	u.Input, u.Cached, u.Written = b.Tokens()
	return u
}

func (u inputUsage) without(other inputUsage) inputUsage {
	return inputUsage{u.Input - other.Input, u.Cached - other.Cached, u.Written - other.Written}
}

// An askedRound is what the API says of a round and its request.
type askedRound struct {
	Round   int
	Text    string
	Usage   inputUsage
	Request struct {
		Epoch turnkeeper.EpochID
		Start *struct{ Reason string } `json:"epoch_start"`
	}
}

// A judgement adds up what is found of requests.
type judgement struct {
	*env.Env

	bills            map[int]inferencetest.Bill        // by number of the request
	newest           map[turnkeeper.EpochID][]newestOf // on record, by turn
	side             map[inputUsage]bool               // of requests that are no rounds
	reasons          map[string]int                    // why epochs began
	rounds           int
	repeated, cached int64 // bytes
	shown            int   // requests that were compared with what is shown of them
}

// A newestOf is the newest request of a turn in an epoch.
type newestOf struct {
	inferencetest.Bill

	turn int64
}

// judge compares what the API says of all rounds with what the providers got.
func judge(e *env.Env, account *inferencetest.Account, api string) {
	e.T.Helper()
	refusals := account.Refusals()
	for _, refusal := range refusals[:min(5, len(refusals))] {
		e.T.Errorf("one of %d requests that were refused: %.2000s", len(refusals), refusal)
	}
	j := &judgement{Env: e, bills: map[int]inferencetest.Bill{}, reasons: map[string]int{},
		newest: map[turnkeeper.EpochID][]newestOf{}, side: map[inputUsage]bool{{}: true}}
	for _, b := range account.Bills() {
		j.bills[b.N] = b
		if len(b.Chat().Tools) == 0 {
			j.side[usageOf(b)] = true
		}
	}
	// turns that were abandoned are not extended
	told := env.Query[[]int64](e, "select array_agg(t.id order by t.id) from turns t join messages m on m.turn_id = t.id")
	for _, id := range told {
		var turn struct {
			Agent  string
			Rounds []askedRound
		}
		if err := getJSON(fmt.Sprintf("%s/v1/turns/%d", api, id), &turn); err != nil {
			e.T.Fatal(err)
		}
		for _, r := range turn.Rounds {
			j.round(id, turn.Agent, r)
		}
	}
	e.T.Logf("%d rounds on record, %d requests answered; epochs began %v; of %d bytes repeated %d were cached (%.2f %%); %d shown",
		j.rounds, len(j.bills), j.reasons, j.repeated, j.cached, 100*float64(j.cached)/float64(max(j.repeated, 1)),
		j.shown)
	if j.repeated == 0 || j.cached < j.repeated*95/100 {
		e.T.Errorf("of %d bytes that requests repeat, %d were cached", j.repeated, j.cached)
	}
}

func (j *judgement) round(turn int64, agent string, r askedRound) {
	j.T.Helper()
	where := fmt.Sprintf("turn %d of %s, round %d", turn, agent, r.Round)
	var number int
	if _, err := fmt.Sscanf(r.Text, "[%d]", &number); err != nil {
		j.T.Errorf("%s: its answer is %q", where, r.Text)
		return
	}
	bill, known := j.bills[number]
	if !known {
		j.T.Errorf("%s: its answer, number %d, is not one of the provider's", where, number)
		return
	}
	if used := r.Usage; !j.billed(used, bill) {
		j.T.Errorf("%s: its usage is %+v, and the provider billed %+v", where, used, usageOf(bill))
	}
	j.rounds++
	all := j.newest[r.Request.Epoch]
	switch start := r.Request.Start; {
	case start != nil:
		j.reasons[start.Reason]++
		if len(all) > 0 || strings.HasPrefix(agent, "calm") && start.Reason != "" {
			j.T.Errorf("%s: an epoch began for %q", where, start.Reason)
		}
	case len(all) == 0:
		j.T.Errorf("%s: its epoch %v has no other request", where, r.Request.Epoch)
	default:
		j.extends(where, before(all, turn, agent, bill), bill)
	}
	if n := len(all); n > 0 && all[n-1].turn == turn {
		all = all[:n-1]
	}
	j.newest[r.Request.Epoch] = append(all, newestOf{bill, turn})
	if every := testrun.Count(4, env.FaultCount(20, 40)); number%every == 0 {
		j.shown++
		got := j.Turnctl("show", fmt.Sprint(turn), "--request", fmt.Sprint(r.Round))
		if got.Code != 0 || got.Stdout != string(bill.Body) {
			j.T.Errorf("%s: turnctl show ends with %d\n%s\nshows %.4000s\nsent  %.4000s", where, got.Code, got.Stderr,
				got.Stdout, bill.Body)
		}
	}
}

// before returns which of the newest requests in the turns of an epoch the request of a turn must extend: that of the
// turn itself, or else of the one before it. If turns go on while others wait, it is that of one before it.
func before(all []newestOf, turn int64, agent string, bill inferencetest.Bill) inferencetest.Bill {
	last := all[len(all)-1]
	if last.turn == turn || !strings.HasPrefix(agent, "going") {
		return last.Bill
	}
	for _, one := range slices.Backward(all) {
		if extends, _ := bill.Extends(one.Recorded); extends {
			return one.Bill
		}
	}
	return last.Bill
}

// extends checks that a request extends the one before it, and adds up what it repeats.
func (j *judgement) extends(where string, before, bill inferencetest.Bill) {
	j.T.Helper()
	extends, shared := bill.Extends(before.Recorded)
	if !extends {
		j.T.Errorf("%s: request %d does not extend request %d, but for %d bytes:\n%.6000s\n%.6000s", where, bill.N,
			before.N, shared, before.Body, bill.Body)
	}
	j.repeated += int64(before.Input)
	j.cached += int64(min(bill.Cached, shared))
}

// billed reports whether the usage of a round is what its request cost, and perhaps a summary and a worker's own
// request before it.
func (j *judgement) billed(used inputUsage, bill inferencetest.Bill) bool {
	more := used.without(usageOf(bill))
	for side := range j.side {
		if j.side[more.without(side)] {
			return true
		}
	}
	return false
}

// getJSON decodes what the API answers.
func getJSON(url string, into any) error {
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return json.NewDecoder(res.Body).Decode(into)
}
