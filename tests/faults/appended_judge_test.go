package faults_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"turnkeeper"
	"turnkeeper/inference/inferencetest"
	"turnkeeper/internal/testrun"
	"turnkeeper/tests/internal/env"
)

// An askedRound is what the API says of a round and its request.
type askedRound struct {
	Round int
	Text  string
	Usage struct {
		Input   int64 `json:"input_tokens"`
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	}
	Request struct {
		Epoch turnkeeper.EpochID
		Start *struct{ Reason string } `json:"epoch_start"`
	}
}

// maxProbe is more than a worker's own request takes, in tokens. It is added to the round before which it is made.
const maxProbe = 30

// A judgement adds up what is found of requests.
type judgement struct {
	*env.Env

	bills            map[int]inferencetest.Bill                // by number of the request
	newest           map[turnkeeper.EpochID]inferencetest.Bill // on record
	reasons          map[string]int                            // why epochs began
	rounds           int
	repeated, cached int64 // bytes
	shown            int   // requests that were compared with what is shown of them
}

// judge compares what the API says of all rounds with what the providers got.
func judge(e *env.Env, account *inferencetest.Account, api string) {
	e.T.Helper()
	if refusals := account.Refusals(); len(refusals) > 0 {
		e.T.Errorf("%d requests were refused, the first: %.3000s", len(refusals), refusals[0])
	}
	j := &judgement{Env: e, bills: map[int]inferencetest.Bill{}, reasons: map[string]int{},
		newest: map[turnkeeper.EpochID]inferencetest.Bill{}}
	for _, b := range account.Bills() {
		j.bills[b.N] = b
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
	input, cached, written := bill.Tokens()
	if u := r.Usage; !known || u.Input < input || u.Cached < cached || u.Written < written {
		j.T.Errorf("%s: its usage is %+v, and the provider billed %d, %d, %d", where, u, input, cached, written)
	} else if more := u.Input - input; more > maxProbe || u.Cached-cached > more {
		j.T.Errorf("%s: its usage is %+v, and the provider billed %d, %d, %d", where, u, input, cached, written)
	}
	j.rounds++
	before, going := j.newest[r.Request.Epoch]
	j.newest[r.Request.Epoch] = bill
	switch start := r.Request.Start; {
	case start != nil:
		j.reasons[start.Reason]++
		if going || strings.HasPrefix(agent, "calm") && start.Reason != "" {
			j.T.Errorf("%s: an epoch began for %q", where, start.Reason)
		}
	case !going:
		j.T.Errorf("%s: its epoch %v has no other request", where, r.Request.Epoch)
	default:
		extends, shared := bill.Extends(before.Recorded)
		if !extends {
			j.T.Errorf("%s: request %d does not extend request %d, but for %d bytes:\n%.6000s\n%.6000s", where, number,
				before.N, shared, before.Body, bill.Body)
		}
		j.repeated += int64(shared)
		j.cached += int64(min(bill.Cached, shared))
		if bill.Cached < shared && !j.T.Failed() {
			j.T.Logf("%s: of %d bytes %d were cached", where, shared, bill.Cached)
		}
	}
	if every := testrun.Count(4, env.FaultCount(8, 40)); number%every == 0 {
		j.shown++
		got := j.Turnctl("show", fmt.Sprint(turn), "--request", fmt.Sprint(r.Round))
		if got.Code != 0 || got.Stdout != string(bill.Body) {
			j.T.Errorf("%s: turnctl show ends with %d\n%s\nshows %.4000s\nsent  %.4000s", where, got.Code, got.Stderr,
				got.Stdout, bill.Body)
		}
	}
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
