package page

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
	"turnkeeper/httpapi/internal/request"
	"turnkeeper/internal/presence"
	"turnkeeper/internal/survival"
	"turnkeeper/internal/views"
	"turnkeeper/internal/waiting"
	"turnkeeper/storage/operate"
)

const (
	figuresWindow = time.Minute
	openShown     = 25
	endedShown    = 10
)

// showOverview shows the overview. A viewer restricted to some agents sees no figures and workers.
func (h *Handler) showOverview(c *request.Call) (err error) {
	ctx, store := c.Context(), h.cfg.Store
	var v Overview
	if v.Scheduler, err = store.SchedulerSettings(ctx); err != nil {
		return err
	}
	models, err := h.access.Models(c)
	if err != nil {
		return err
	}
	for _, m := range models {
		if m.Down() && m.Used() {
			v.Down = append(v.Down, m)
		}
	}
	levels, err := h.access.Levels(c)
	if err != nil {
		return err
	}
	for _, a := range levels.Agents {
		if a.Level != survival.Normal || a.Pin != nil {
			v.Levels = append(v.Levels, views.OfAgentLevel(a))
		}
	}
	if v.Webhooks, err = failing(c, h.access); err != nil {
		return err
	}
	workers, err := store.Workers(ctx)
	if err != nil {
		return err
	}
	v.NoWorker = !slices.ContainsFunc(workers, func(w presence.Heartbeat) bool { return w.State() == presence.Alive })
	v.Refused = presence.Longest(h.cfg.Refused(), workers)
	agents, err := h.access.Agents(c)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		v.Agents = append(v.Agents, agent.Name)
	}
	if c.Caller.SeesAll() {
		err = v.readAll(ctx, store)
	} else {
		err = v.readSome(c, store)
	}
	if err != nil {
		return err
	}
	return h.show(c, http.StatusOK, v)
}

// readAll reads what the overview shows of all agents.
func (v *Overview) readAll(ctx context.Context, store Store) error {
	figures, err := store.Totals(ctx, figuresWindow)
	if err != nil {
		return err
	}
	v.Totals = &figures
	if v.Workers, err = store.Workers(ctx); err != nil {
		return err
	}
	if v.Open, err = store.OpenTurns(ctx, openShown); err != nil {
		return err
	}
	newest, err := store.Turns(ctx, operate.Page{Limit: openShown + endedShown})
	v.Ended = ended(newest)
	return err
}

// readSome reads what the overview shows to a caller who sees some agents alone.
func (v *Overview) readSome(c *request.Call, store Store) error {
	var newest []waiting.Turn
	for _, agent := range c.Caller.Token.Agents {
		turns, err := store.Turns(c.Context(), operate.Page{Agent: agent, Limit: openShown + endedShown})
		if err != nil {
			return err
		}
		newest = append(newest, turns...)
	}
	slices.SortFunc(newest, func(x, y waiting.Turn) int { return cmp.Compare(y.ID, x.ID) })
	v.Ended = ended(newest)
	for _, turn := range newest {
		if !turn.State.Terminal() && len(v.Open) < openShown {
			v.Open = append(v.Open, turn)
		}
	}
	return nil
}

func ended(newest []waiting.Turn) (turns []waiting.Turn) {
	for _, turn := range newest {
		if turn.State.Terminal() && len(turns) < endedShown {
			turns = append(turns, turn)
		}
	}
	return turns
}

// listing reads the parameters of a list. Without the parameter agent, a token restricted to some
// agents lists its first one.
func (h *Handler) listing(c *request.Call, states ...string) (operate.Page, Listing, error) {
	query := c.URL.Query()
	if query.Get("agent") == "" && !c.Caller.SeesAll() {
		query.Set("agent", c.Caller.Token.Agents[0])
		c.URL.RawQuery = query.Encode()
	}
	p, err := c.Page("cursor", states...)
	if err != nil {
		return p, Listing{}, err
	}
	l := Listing{States: states, Agent: p.Agent, State: p.State, Newer: p.Cursor > 0, First: listPath(c, p, 0)}
	agents, err := h.access.Agents(c)
	for _, agent := range agents {
		l.Agents = append(l.Agents, agent.Name)
	}
	return p, l, err
}

// listPath returns the path of the list's page at a cursor.
func listPath(c *request.Call, p operate.Page, cursor int64) string {
	query := url.Values{}
	set := func(name, value string) {
		if value != "" {
			query.Set(name, value)
		}
	}
	set("agent", p.Agent)
	set("user", p.User)
	set("state", p.State)
	if p.Limit != request.DefaultLimit {
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

// showList shows a page of a list. cursor returns the cursor of the page after the entries found.
func showList[N any](h *Handler, c *request.Call, states []string, read func(context.Context,
	operate.Page) ([]N, error),
	cursor func(operate.Page, []N) int64, view func(Listing, []N) Page) error {
	p, l, err := h.listing(c, states...)
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
	return h.show(c, http.StatusOK, view(l, found))
}

// showFound shows a page of search results.
func showFound[N any](h *Handler, c *request.Call, states []string, find func(context.Context,
	operate.Search) ([]N, int64, error),
	view func(Listing, []N) Page) error {
	_, l, err := h.listing(c, states...)
	if err != nil {
		return err
	}
	f, err := c.Search(states...)
	if err != nil {
		return err
	}
	found, next, err := find(c.Context(), f)
	if err != nil {
		return err
	}
	query := c.URL.Query()
	l.Find = &Find{
		User: f.User, Conversation: f.Conversation, Text: f.Words, ErrorClass: f.ErrorClass, Since: query.Get("since"),
		Until:   query.Get("until"),
		Further: next > 0 && len(found) < f.Limit,
	}
	l.First, l.Next = pathAt(c.URL, 0), ""
	if next > 0 {
		l.Next = pathAt(c.URL, next)
	}
	return h.show(c, http.StatusOK, view(l, found))
}

// pathAt returns the path of a list at a cursor.
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

func (h *Handler) showTurns(c *request.Call) error {
	return showFound(h, c, request.TurnStates, h.cfg.Store.FindTurns,
		func(l Listing, found []waiting.Turn) Page { return Turns{Listing: l, Turns: found} })
}

func (h *Handler) showInbox(c *request.Call) error {
	return showFound(h, c, request.MessageStates, h.cfg.Store.FindMessages,
		func(l Listing, found []waiting.Message) Page {
			return Inbox{Listing: l, Messages: found, Number: rand.Text()}
		})
}

func (h *Handler) showTranscript(c *request.Call) error {
	p, conversation, err := c.Conversation()
	if err != nil {
		return err
	}
	exchanges, next, err := h.cfg.Store.Transcript(c.Context(), p, conversation)
	if err != nil {
		return err
	}
	if len(exchanges) == 0 && p.Cursor == 0 {
		return request.Refuse(http.StatusNotFound, "the agent %.60q has no conversation %.200q", p.Agent, conversation)
	}
	slices.Reverse(exchanges)
	v := Transcript{User: p.User, Conversation: conversation, Exchanges: exchanges}
	v.Agent, v.Newer, v.First = p.Agent, p.Cursor > 0, pathAt(c.URL, 0)
	if next > 0 {
		v.Next = pathAt(c.URL, next)
	}
	return h.show(c, http.StatusOK, v)
}

func (h *Handler) showReplies(c *request.Call) error {
	return showList(h, c, nil, h.cfg.Store.LatestReplies,
		func(_ operate.Page, found []turnkeeper.Reply) int64 { return int64(found[len(found)-1].ID) },
		func(l Listing, found []turnkeeper.Reply) Page {
			return Replies{Listing: l, Replies: found}
		})
}

func (h *Handler) showLanes(c *request.Call) error {
	scheduler, err := h.cfg.Store.SchedulerSettings(c.Context())
	if err != nil {
		return err
	}
	return showList(h, c, nil, h.cfg.Store.Lanes, passed[operate.LaneView],
		func(l Listing, found []operate.LaneView) Page {
			return Lanes{Listing: l, Scheduler: scheduler, Lanes: found}
		})
}

func (h *Handler) showSchedules(c *request.Call) error {
	scheduler, err := h.cfg.Store.SchedulerSettings(c.Context())
	if err != nil {
		return err
	}
	read := func(_ context.Context, p operate.Page) ([]turnkeeper.Schedule, error) {
		all, err := h.access.Schedules(c)
		return part(all, p), err
	}
	return showList(h, c, nil, read, passed[turnkeeper.Schedule],
		func(l Listing, found []turnkeeper.Schedule) Page {
			return Schedules{Listing: l, Scheduler: scheduler, Schedules: found}
		})
}

// passed returns the next cursor of lists whose cursor counts entries.
func passed[N any](p operate.Page, found []N) int64 { return p.Cursor + int64(len(found)) }

// part returns a page of a complete list.
func part[N any](all []N, p operate.Page) []N {
	from := min(p.Cursor, int64(len(all)))
	return all[from:min(from+int64(p.Limit), int64(len(all)))]
}
