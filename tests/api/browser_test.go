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

// A browser is a Chromium with one window. When the test ends it must have reported no error: of a script, of
// the content security policy, or of loading.
type browser struct {
	t    testing.TB
	ctx  context.Context //nolint:containedctx // context of the window, as chromedp needs it
	base string

	mu         sync.Mutex
	complaints []string
	refused    []string // texts of errors that the test expects
}

func openBrowser(t testing.TB, base string) *browser {
	t.Helper()
	b := &browser{t: t, base: base}
	t.Cleanup(func() { // when the browser is closed
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, complaint := range b.complaints {
			t.Errorf("the browser reported: %s", complaint)
		}
	})
	b.ctx = newBrowser(context.Background(), t)
	if err := chromedp.Listen(b.ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	send(b, log.Enable, cdp.Empty{})
	b.window(1280, 900, false)
	return b
}

// listen records the errors that the browser reports.
func (b *browser) listen(event any) {
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

// expect allows an error that contains this text.
func (b *browser) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, text)
}

// do runs an action with the timeout of the test.
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

// send sends a command of the browser's protocol.
func send[P, R any](b *browser, command cdp.Command[P, R], params P) {
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

// window sets the size and the preferred color scheme.
func (b *browser) window(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	send(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height,
		DeviceScaleFactor: 1, Mobile: width < 600})
	send(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}}})
}

// eval returns the value of an expression.
func eval[V any](b *browser, expression string) V {
	b.t.Helper()
	return do(b, chromedp.Evaluate[V](expression))
}

// run runs statements.
func (b *browser) run(statements string) {
	b.t.Helper()
	do(b, chromedp.Evaluate[chromedp.Void](statements))
}

// await waits until an expression is true. It is not true yet if it cannot be evaluated because another page
// is loading.
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
			b.t.Fatalf("timeout waiting until %s: %v\n%s", what, err,
				eval[string](b, "location.href + '\\n' + document.body.innerText"))
		}
	}
}

// awaitPage waits until the page at a path is loaded.
func (b *browser) awaitPage(path string) {
	b.t.Helper()
	b.await("the page "+path,
		fmt.Sprintf("document.readyState === 'complete' && location.pathname + location.search === %q", path))
}

// press types keys, which go to the focused element.
func (b *browser) press(keys string) {
	b.t.Helper()
	do(b, chromedp.KeyEvent(keys))
}

// tabTo moves the focus with the Tab key to the element with this text or label.
func (b *browser) tabTo(name string) {
	b.t.Helper()
	for range 60 {
		b.press(kb.Tab)
		if b.focus() == name {
			return
		}
	}
	b.t.Fatalf("the Tab key does not lead to %q on %s", name, eval[string](b, "location.href"))
}

// focus returns the text or label of the focused element.
func (b *browser) focus() string {
	b.t.Helper()
	return eval[string](b, `(() => {
		const e = document.activeElement;
		return (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent || e.tagName).trim();
	})()`)
}
