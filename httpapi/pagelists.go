package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"turnkeeper"
	"turnkeeper/httpapi/page"
	"turnkeeper/storage/operate"
)

const (
	figuresWindow = time.Minute
	openShown     = 25
	endedShown    = 10
)

// showOverview shows what runs. Who sees some agents sees nothing that is about all.
func (a *API) showOverview(c *call) (err error) {
	ctx, store := c.Context(), a.cfg.Store
	var v page.Overview
	if v.Scheduler, err = store.SchedulerSettings(ctx); err != nil {
		return err
	}
	models, err := a.modelsFor(c)
	if err != nil {
		return err
	}
	for _, m := range models {
		if m.Down() && m.Used() {
			v.Down = append(v.Down, m)
		}
	}
	workers, err := store.Workers(ctx)
	if err != nil {
		return err
	}
	v.NoWorker = !slices.ContainsFunc(workers, func(w turnkeeper.Heartbeat) bool { return w.State() == turnkeeper.WorkerAlive })
	agents, err := a.agentsFor(c)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		v.Agents = append(v.Agents, agent.Name)
	}
	if c.caller.seesAll() {
		err = a.wholeHouse(ctx, &v)
	} else {
		err = a.someAgents(c, &v)
	}
	if err != nil {
		return err
	}
	return a.show(c, http.StatusOK, v)
}

func (a *API) wholeHouse(ctx context.Context, v *page.Overview) error {
	figures, err := a.cfg.Store.Figures(ctx, figuresWindow)
	if err != nil {
		return err
	}
	v.Figures = &figures
	if v.Workers, err = a.cfg.Store.Workers(ctx); err != nil {
		return err
	}
	if v.Open, err = a.cfg.Store.OpenTurns(ctx, openShown); err != nil {
		return err
	}
	newest, err := a.cfg.Store.Turns(ctx, operate.Page{Limit: openShown + endedShown})
	v.Ended = ended(newest)
	return err
}

func (a *API) someAgents(c *call, v *page.Overview) error {
	var newest []turnkeeper.Turn
	for _, agent := range c.caller.token.Agents {
		turns, err := a.cfg.Store.Turns(c.Context(), operate.Page{Agent: agent, Limit: openShown + endedShown})
		if err != nil {
			return err
		}
		newest = append(newest, turns...)
	}
	slices.SortFunc(newest, func(x, y turnkeeper.Turn) int { return cmp.Compare(y.ID, x.ID) })
	v.Ended = ended(newest)
	for _, turn := range newest {
		if !turn.State.Terminal() && len(v.Open) < openShown {
			v.Open = append(v.Open, turn)
		}
	}
	return nil
}

func ended(newest []turnkeeper.Turn) (turns []turnkeeper.Turn) {
	for _, turn := range newest {
		if turn.State.Terminal() && len(turns) < endedShown {
			turns = append(turns, turn)
		}
	}
	return turns
}

// agentsFor are the agents that the caller sees.
func (a *API) agentsFor(c *call) ([]turnkeeper.AgentRegistration, error) {
	all, err := a.cfg.Store.Agents(c.Context())
	return slices.DeleteFunc(all, func(r turnkeeper.AgentRegistration) bool { return !c.caller.sees(r.Name) }), err
}

// listing reads what a page's list is asked for. A token for several agents begins
// with its first.
func (a *API) listing(c *call, states ...string) (operate.Page, page.Listing, error) {
	query := c.URL.Query()
	if query.Get("agent") == "" && !c.caller.seesAll() {
		query.Set("agent", c.caller.token.Agents[0])
		c.URL.RawQuery = query.Encode()
	}
	p, err := c.page("cursor", states...)
	if err != nil {
		return p, page.Listing{}, err
	}
	l := page.Listing{States: states, Agent: p.Agent, State: p.State, Newer: p.Cursor > 0, First: listPath(c, p, 0)}
	agents, err := a.agentsFor(c)
	for _, agent := range agents {
		l.Agents = append(l.Agents, agent.Name)
	}
	return p, l, err
}

// listPath is the address of the list's page after a cursor.
func listPath(c *call, p operate.Page, cursor int64) string {
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("agent", p.Agent)
	set("state", p.State)
	if p.Limit != defaultLimit {
		query.Set("limit", strconv.Itoa(p.Limit))
	}
	if cursor > 0 {
		query.Set("cursor", strconv.FormatInt(cursor, 10))
	}
	if len(query) == 0 {
		return c.URL.Path
	}
	return c.URL.Path + "?" + query.Encode()
}

// showList shows a page of a list that the store pages. cursor is that of the page
// after these entries.
func showList[N any](a *API, c *call, states []string, read func(context.Context, operate.Page) ([]N, error),
	cursor func(operate.Page, []N) int64, view func(page.Listing, []N) page.Page) error {
	p, l, err := a.listing(c, states...)
	if err != nil {
		return err
	}
	found, err := read(c.Context(), p)
	if err != nil {
		return err
	}
	if len(found) == p.Limit {
		l.Next = listPath(c, p, cursor(p, found))
	}
	return a.show(c, http.StatusOK, view(l, found))
}

// showFound shows a page of what a search finds.
func showFound[N any](a *API, c *call, states []string, find func(context.Context, operate.Search) ([]N, int64, error),
	view func(page.Listing, []N) page.Page) error {
	_, l, err := a.listing(c, states...)
	if err != nil {
		return err
	}
	f, err := c.search(states...)
	if err != nil {
		return err
	}
	found, next, err := find(c.Context(), f)
	if err != nil {
		return err
	}
	query := c.URL.Query()
	l.Find = &page.Find{
		Conversation: f.Conversation, Text: f.Words, ErrorClass: f.ErrorClass, Since: query.Get("since"), Until: query.Get("until"),
		Further: next > 0 && len(found) < f.Limit,
	}
	l.First, l.Next = pathAt(c.URL, 0), ""
	if next > 0 {
		l.Next = pathAt(c.URL, next)
	}
	return a.show(c, http.StatusOK, view(l, found))
}

// pathAt is the address of a list from a cursor on.
func pathAt(u *url.URL, cursor int64) string {
	query := u.Query()
	for _, name := range []string{"cursor", "done"} {
		query.Del(name)
	}
	for name, values := range query {
		if values[0] == "" {
			query.Del(name)
		}
	}
	if cursor > 0 {
		query.Set("cursor", strconv.FormatInt(cursor, 10))
	}
	return (&url.URL{Path: u.Path, RawQuery: query.Encode()}).RequestURI()
}

func (a *API) showTurns(c *call) error {
	return showFound(a, c, turnStates, a.cfg.Store.FindTurns,
		func(l page.Listing, found []turnkeeper.Turn) page.Page { return page.Turns{Listing: l, Turns: found} })
}

func (a *API) showInbox(c *call) error {
	return showFound(a, c, messageStates, a.cfg.Store.FindMessages, func(l page.Listing, found []turnkeeper.Message) page.Page {
		return page.Inbox{Listing: l, Messages: found, Number: rand.Text()}
	})
}

func (a *API) showTranscript(c *call) error {
	p, conversation, err := c.conversation()
	if err != nil {
		return err
	}
	exchanges, next, err := a.cfg.Store.Transcript(c.Context(), p, conversation)
	if err != nil {
		return err
	}
	if len(exchanges) == 0 && p.Cursor == 0 {
		return refusal(http.StatusNotFound, "the agent %.60q has no conversation %.200q", p.Agent, conversation)
	}
	slices.Reverse(exchanges)
	v := page.Transcript{Conversation: conversation, Exchanges: exchanges}
	v.Agent, v.Newer, v.First = p.Agent, p.Cursor > 0, pathAt(c.URL, 0)
	if next > 0 {
		v.Next = pathAt(c.URL, next)
	}
	return a.show(c, http.StatusOK, v)
}

func (a *API) showReplies(c *call) error {
	return showList(a, c, nil, a.cfg.Store.LatestReplies,
		func(_ operate.Page, found []turnkeeper.Reply) int64 { return int64(found[len(found)-1].ID) },
		func(l page.Listing, found []turnkeeper.Reply) page.Page {
			return page.Replies{Listing: l, Replies: found}
		})
}

func (a *API) showLanes(c *call) error {
	scheduler, err := a.cfg.Store.SchedulerSettings(c.Context())
	if err != nil {
		return err
	}
	return showList(a, c, nil, a.cfg.Store.Lanes, passed[operate.LaneView],
		func(l page.Listing, found []operate.LaneView) page.Page {
			return page.Lanes{Listing: l, Scheduler: scheduler, Lanes: found}
		})
}

func (a *API) showAgents(c *call) error {
	read := func(_ context.Context, p operate.Page) ([]turnkeeper.AgentRegistration, error) {
		all, err := a.agentsFor(c)
		return part(all, p), err
	}
	return showList(a, c, nil, read, passed[turnkeeper.AgentRegistration],
		func(l page.Listing, found []turnkeeper.AgentRegistration) page.Page {
			return page.Agents{Listing: l, Agents: found}
		})
}

func (a *API) showSchedules(c *call) error {
	scheduler, err := a.cfg.Store.SchedulerSettings(c.Context())
	if err != nil {
		return err
	}
	read := func(ctx context.Context, p operate.Page) ([]turnkeeper.Schedule, error) {
		all, err := a.cfg.Store.Schedules(ctx)
		all = slices.DeleteFunc(all, func(s turnkeeper.Schedule) bool { return !c.caller.sees(s.Agent) })
		return part(all, p), err
	}
	return showList(a, c, nil, read, passed[turnkeeper.Schedule],
		func(l page.Listing, found []turnkeeper.Schedule) page.Page {
			return page.Schedules{Listing: l, Scheduler: scheduler, Schedules: found}
		})
}

// passed is the cursor of lists that count what they pass over.
func passed[N any](p operate.Page, found []N) int64 { return p.Cursor + int64(len(found)) }

// part is a page of a list that was read whole.
func part[N any](all []N, p operate.Page) []N {
	from := min(p.Cursor, int64(len(all)))
	return all[from:min(from+int64(p.Limit), int64(len(all)))]
}
