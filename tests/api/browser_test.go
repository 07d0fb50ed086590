package api_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"turnkeeper/tests/internal/env"
)

// A browser is a Chromium of its own, with one window. When the test ends it must
// have had nothing to complain of: no error of a script, nothing that the page's
// policy forbids, nothing that could not be loaded.
type browser struct {
	t    testing.TB
	ctx  context.Context //nolint:containedctx // of the window, as chromedp has it
	base string

	mu         sync.Mutex
	complaints []string
	refused    []string // parts of complaints that the test expects
}

func openBrowser(t testing.TB, base string) *browser {
	t.Helper()
	b := &browser{t: t, base: base}
	t.Cleanup(func() { // when the browser is closed
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, complaint := range b.complaints {
			t.Errorf("the browser complained: %s", complaint)
		}
	})
	b.ctx = newBrowser(context.Background(), t)
	if err := chromedp.Listen(b.ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	tell(b, log.Enable, cdp.Empty{})
	b.window(1280, 900, false)
	return b
}

// hear keeps what the browser complains of.
func (b *browser) hear(event any) {
	var complaint string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			complaint += " " + thrown.Description
		}
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			complaint += " " + string(arg.Value)
		}
		complaint = fmt.Sprintf("console.%s:%s", e.Type, complaint)
	case *log.EventEntryAdded:
		complaint = fmt.Sprintf("%s %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, expected := range b.refused {
		if strings.Contains(complaint, expected) {
			return
		}
	}
	b.complaints = append(b.complaints, complaint)
}

// expect lets a complaint pass that has this text in it.
func (b *browser) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, text)
}

// do runs an action within the test's patience.
func do[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, env.Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// tell gives the browser a command of its protocol.
func tell[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// open loads a page.
func (b *browser) open(path string) {
	b.t.Helper()
	do(b, chromedp.Navigate(b.base+path))
}

// window sets the size, and which colours the reader prefers.
func (b *browser) window(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	tell(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
	tell(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// says is the value of an expression.
func says[V any](b *browser, expression string) V {
	b.t.Helper()
	return do(b, chromedp.Evaluate[V](expression))
}

// run runs statements.
func (b *browser) run(statements string) {
	b.t.Helper()
	do(b, chromedp.Evaluate[chromedp.Void](statements))
}

// await returns when an expression is true. One that cannot be told, because
// another page is being loaded, is not true yet.
func (b *browser) await(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, env.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if yes && err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("waited in vain: %s: %v\n%s", what, err, says[string](b, "location.href + '\\n' + document.body.innerText"))
		}
	}
}

// awaitPage returns when the page at a path is there whole.
func (b *browser) awaitPage(path string) {
	b.t.Helper()
	b.await("the page "+path, fmt.Sprintf("document.readyState === 'complete' && location.pathname + location.search === %q", path))
}

// press types keys, as hands do: with nothing but the focus to say where they go.
func (b *browser) press(keys string) {
	b.t.Helper()
	do(b, chromedp.KeyEvent(keys))
}

// tabTo goes with the Tab key to the element that has this text or label.
func (b *browser) tabTo(name string) {
	b.t.Helper()
	for range 60 {
		b.press(kb.Tab)
		if b.focus() == name {
			return
		}
	}
	b.t.Fatalf("the Tab key does not lead to %q on %s", name, says[string](b, "location.href"))
}

// focus is the text, or the label, of what has the focus.
func (b *browser) focus() string {
	b.t.Helper()
	return says[string](b, `(() => {
		const e = document.activeElement;
		return (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent || e.tagName).trim();
	})()`)
}
